//! Files and folders that replace others: in one step, undone if that fails, and durably.

use super::*;

/// File systems without a rename that does not replace, and without second names for files.
#[test]
fn a_name_is_taken_exclusively_whatever_the_file_system_knows() {
    let folder = Folder::new("exclusive");
    let path = folder.0.join("a");
    let denied = |kind, errno| Rule::every(1, Fault::Errno(errno)).on(kind);
    for errno in [libc::EINVAL, libc::ENOSYS, libc::EOPNOTSUPP, libc::EPERM] {
        let ways = [
            vec![denied(Kind::RenameNew, errno)],
            vec![denied(Kind::RenameNew, errno), denied(Kind::Link, libc::EPERM)],
            vec![denied(Kind::RenameNew, errno), denied(Kind::Link, errno)],
        ];
        for rules in ways {
            let armed = arm(Faults::new(rules));
            let make = |bytes: &[u8]| {
                let temp = TempFile::beside(&path)?;
                sys::write_at(temp.fd(), bytes, 0).unwrap();
                temp.publish(true)
            };
            make(b"first").unwrap();
            assert_eq!("already-exists", make(b"second").unwrap_err().code());
            drop(armed);
            assert_eq!(b"first".as_slice(), std::fs::read(&path).unwrap());
            assert_eq!(["a"], folder.names().as_slice());
            std::fs::remove_file(&path).unwrap();
        }
    }
    // A real refusal is an error.
    let full = denied(Kind::RenameNew, libc::ENOSPC);
    let armed = arm(Faults::new([full]));
    let temp = TempFile::beside(&path).unwrap();
    assert_eq!("disk-full", temp.publish(true).unwrap_err().code());
    drop(armed);
    assert!(folder.names().is_empty());
}

/// Files and folders that replace others, with and without system calls for that.
#[test]
fn a_complete_array_takes_its_place_in_one_step() {
    let folder = Folder::new("places");
    let [fresh, target, aside] = ["fresh", "target", "aside"].map(|name| folder.0.join(name));
    let inside =
        |path: &Path| std::fs::read(if path.is_dir() { path.join("in") } else { path.into() });
    let make = |path: &Path, text: &str, is_folder: bool| match is_folder {
        true => std::fs::create_dir(path).and_then(|()| std::fs::write(path.join("in"), text)),
        false => std::fs::write(path, text),
    };
    let clear = |path: &Path| match path.is_dir() {
        true => std::fs::remove_dir_all(path).unwrap(),
        false => std::fs::remove_file(path).unwrap(),
    };
    let denied = |kind| Rule::every(1, Fault::Errno(libc::ENOSYS)).on(kind);
    for (exchanges, is_new, is_old) in (0..8).map(|k| (k & 1 == 0, k & 2 == 0, k & 4 == 0)) {
        let place = |exclusive| {
            let rules = [denied(Kind::Exchange), denied(Kind::RenameNew)];
            let _armed = (!exchanges).then(|| arm(Faults::new(rules)));
            move_into_place(&fresh, &target, &aside, exclusive).map_err(|error| {
                assert_eq!(Some(target.as_path()), error.path());
                error.code()
            })
        };
        let why = format!("{exchanges} {is_new} {is_old}");
        assert_eq!(Err("not-found"), place(false), "{why}");
        make(&fresh, "first", is_old).unwrap();
        assert_eq!(Ok(None), place(false), "{why}");
        make(&fresh, "second", is_new).unwrap();
        assert_eq!(Err("already-exists"), place(true), "{why}");
        assert_eq!(b"first".as_slice(), inside(&target).unwrap(), "{why}");
        let left = place(false).unwrap();
        assert_eq!(b"second".as_slice(), inside(&target).unwrap(), "{why}");
        let expected = match (is_new || is_old, exchanges) {
            (false, _) => None,
            (true, true) => Some(&fresh),
            (true, false) => Some(&aside),
        };
        assert_eq!(expected, left.as_ref(), "{why}");
        if let Some(old) = left {
            assert_eq!(b"first".as_slice(), inside(&old).unwrap(), "{why}");
            clear(&old);
        }
        clear(&target);
        make(&fresh, "third", is_new).unwrap();
        assert_eq!(Ok(None), place(true), "{why}");
        assert_eq!(["target"], folder.names().as_slice(), "{why}");
        clear(&target);
    }
}

#[test]
fn what_cannot_take_the_place_leaves_the_old_one_there() {
    let folder = Folder::new("back");
    let [fresh, target, aside] = ["fresh", "target", "aside"].map(|name| folder.0.join(name));
    std::fs::create_dir(&fresh).unwrap();
    std::fs::write(&target, b"old").unwrap();
    let rules = [
        Rule::every(1, Fault::Errno(libc::ENOSYS)).on(Kind::Exchange),
        Rule::only(2, Fault::Errno(libc::EIO)).on(Kind::Rename),
    ];
    let armed = arm(Faults::new(rules));
    let error = move_into_place(&fresh, &target, &aside, false).unwrap_err();
    drop(armed);
    assert_eq!("disk-failure", error.code());
    assert_eq!(b"old".as_slice(), std::fs::read(&target).unwrap());
    assert_eq!(["fresh", "target"], folder.names().as_slice());
}

/// A folder that is exchanged with another is the old one or the new one, and afterwards only the
/// new one.
#[test]
fn names_that_change_places_are_durable_when_the_call_returns() {
    let folder = Folder::new("exchange");
    let [fresh, target, aside] = ["fresh", "target", "aside"].map(|name| folder.0.join(name));
    for (path, text) in [(&fresh, "new"), (&target, "old")] {
        std::fs::create_dir(path).unwrap();
        std::fs::write(path.join("in"), text).unwrap();
    }
    let work = || drop(move_into_place(&fresh, &target, &aside, false).unwrap());
    let (before, ops) = recorded(&folder, work);
    every_crash(&before, &ops, 8, |disk, done, when| {
        let seen = disk.read(&target.join("in")).unwrap_or_else(|| panic!("gone: {when}"));
        assert!(seen == b"new" || (seen == b"old" && !done), "{when}");
    });
}
