use super::*;
use crate::testing::TestDir;

#[test]
fn only_a_call_inside_another_one_is_nested() {
    assert!(!is_inside() && !is_nested());
    let outer = Inside::enter();
    assert!(is_inside() && !is_nested());
    let inner = Inside::enter();
    assert!(is_nested());
    let elsewhere = std::thread::spawn(|| (is_inside(), is_nested())).join().unwrap();
    assert_eq!((false, false), elsewhere, "calls of other threads do not count");
    drop(inner);
    assert!(is_inside() && !is_nested());
    drop(outer);
    assert!(!is_inside());
}

#[test]
fn a_seat_is_given_back() {
    assert_eq!(Seat::None, seat());
    let has = Seated::on(Seat::Has);
    {
        let _shares = Seated::on(Seat::Shares);
        assert_eq!(Seat::Shares, seat());
    }
    assert_eq!(Seat::Has, seat());
    drop(has);
    assert_eq!(Seat::None, seat());
}

#[test]
fn a_callback_on_a_thread_that_helps_has_the_turn_of_the_one_it_helps() {
    let callback = Callback::begin();
    assert_eq!((Seat::Has, true, false), (seat(), is_inside(), is_nested()));
    drop(callback);
    assert_eq!((Seat::None, false), (seat(), is_inside()));
    // On the thread of the access, the code has the seat of the access.
    let _access = Inside::enter();
    let _callback = Callback::begin();
    assert_eq!((Seat::None, true), (seat(), is_nested()));
}

#[test]
fn files_that_this_thread_changes_are_known_until_the_last_change_ends() {
    let dir = TestDir::new("changes");
    let path = dir.file("a", b"x");
    let found = std::fs::metadata(&path).unwrap();
    let file = (found.dev(), found.ino());
    assert!(!changes_here(&path));
    begin_change(file);
    begin_change(file);
    assert!(changes_here(&path) && !changes_here(&dir.file("b", b"x")));
    end_change(file);
    assert!(changes_here(&path));
    end_change(file);
    assert!(!changes_here(&path));
}

#[test]
fn files_that_are_read_are_known_inside_of_the_call() {
    use outcore_io::lock::{Mode, Patience, Range};
    let dir = TestDir::new("reads");
    let path = dir.file("a", b"x");
    let lock = FileLock::acquire(&path, Range::WHOLE, Mode::Shared, Patience::NONE).unwrap();
    let (device, inode) = lock.inode().unwrap();
    let reading = Reading::of(Some(&lock));
    assert!(!reads_here(device, inode), "this thread is in no call");
    let _inside = Inside::enter();
    assert!(reads_here(device, inode) && !reads_here(device, inode + 1));
    drop(reading);
    assert!(!reads_here(device, inode));
    drop(Reading::of(None));
}

#[test]
fn a_refusal_of_memory_is_explained_to_who_is_inside() {
    let refused = || Fault::from(Reason::Busy);
    assert!(hint(refused()).hints().is_empty());
    let _inside = Inside::enter();
    assert!(hint(refused()).hints()[0].contains("after the outer one has returned"));
    let cancelled = Fault::from(outcore_io::StorageError::Cancelled);
    assert!(hint(cancelled).hints().is_empty());
}
