//! The checksum of HDF5's own structures: Bob Jenkins' lookup3 (`hashlittle`, initial value 0).
//!
//! Code that reads an index of chunks without the HDF5 library checks this sum for each node; in
//! Python the check would take longer than everything else.

/// Bytes of one mixing step: three words of four bytes.
const BLOCK: usize = 12;

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
}

/// Returns the checksum of `data`.
#[must_use]
pub fn lookup3(data: &[u8]) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(data.len() as u32);
    let (mut a, mut b, mut c) = (start, start, start);
    let mut rest = data;
    while rest.len() > BLOCK {
        let (block, behind) = rest.split_at(BLOCK);
        rest = behind;
        a = a.wrapping_add(word(&block[..4]));
        b = b.wrapping_add(word(&block[4..8]));
        c = c.wrapping_add(word(&block[8..]));
        a = a.wrapping_sub(c) ^ c.rotate_left(4);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(6);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(8);
        b = b.wrapping_add(a);
        a = a.wrapping_sub(c) ^ c.rotate_left(16);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(19);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(4);
        b = b.wrapping_add(a);
    }
    if rest.is_empty() {
        return c;
    }
    let mut last = [0; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    a = a.wrapping_add(word(&last[..4]));
    b = b.wrapping_add(word(&last[4..8]));
    c = c.wrapping_add(word(&last[8..]));
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

#[cfg(test)]
mod tests {
    use super::lookup3;

    #[test]
    fn values_of_its_author() {
        assert_eq!(0xdead_beef, lookup3(b""));
        assert_eq!(0x1777_0551, lookup3(b"Four score and seven years ago"));
    }
}
