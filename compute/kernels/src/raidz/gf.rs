//! The field GF(2⁸) with the polynomial x⁸+x⁴+x³+x²+1 (0x11d) and generator 2, as `vdev_raidz.c` uses it; tables for vector code.

/// The field's reduction: what x⁸ becomes.
pub(super) const REDUCTION: u8 = 0x1D;

/// Returns 2·`a`.
pub(super) const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 != 0 { REDUCTION } else { 0 }
}

/// a·b from the definition: shift and add.
pub(super) const fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut sum = 0;
    while b != 0 {
        if b & 1 != 0 {
            sum ^= a;
        }
        a = double(a);
        b >>= 1;
    }
    sum
}

const fn powers() -> [u8; 255] {
    let mut table = [1u8; 255];
    let mut n = 1;
    while n < 255 {
        table[n] = double(table[n - 1]);
        n += 1;
    }
    table
}

const fn inverses() -> [u8; 256] {
    let (power, mut table) = (powers(), [0u8; 256]);
    let mut n = 0;
    while n < 255 {
        table[power[n] as usize] = power[(255 - n) % 255];
        n += 1;
    }
    table
}

const fn matrices() -> [u64; 256] {
    let mut table = [0u64; 256];
    let mut c = 0;
    while c < 256 {
        let (mut matrix, mut column, mut image) = (0u64, 0, c as u8);
        while column < 8 {
            let mut row = 0;
            while row < 8 {
                // Output bit `row` takes input bit `column` when bit `row` of c·2^column is set; the row of output bit i is byte 7−i.
                matrix |= ((image >> row & 1) as u64) << (8 * (7 - row) + column);
                row += 1;
            }
            image = double(image);
            column += 1;
        }
        table[c] = matrix;
        c += 1;
    }
    table
}

const fn nibbles() -> [[u8; 32]; 256] {
    let mut table = [[0u8; 32]; 256];
    let mut c = 0;
    while c < 256 {
        let mut n = 0;
        while n < 16 {
            table[c][n] = multiply(c as u8, n as u8);
            table[c][16 + n] = multiply(c as u8, (n << 4) as u8);
            n += 1;
        }
        c += 1;
    }
    table
}

/// `POWERS[n]` is 2ⁿ.
static POWERS: [u8; 255] = powers();
static INVERSES: [u8; 256] = inverses();
/// Matrix of 8×8 bits of x ↦ c·x for each constant c, in the layout of `vgf2p8affineqb`.
pub(super) static MATRICES: [u64; 256] = matrices();
/// Products of each constant c with the 16 low and the 16 high nibbles, for byte shuffles.
pub(super) static NIBBLES: [[u8; 32]; 256] = nibbles();

/// Returns 2ⁿ.
pub(super) fn power(n: usize) -> u8 {
    POWERS[n % 255]
}

/// Returns a·b by table.
pub(super) fn product(a: u8, b: u8) -> u8 {
    let row = &NIBBLES[usize::from(a)];
    row[usize::from(b & 15)] ^ row[16 + usize::from(b >> 4)]
}

/// Returns 1/a; 0 for 0.
pub(super) fn inverse(a: u8) -> u8 {
    INVERSES[usize::from(a)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every parity byte of a pool rests on these tables.
    #[test]
    fn tables_agree_with_the_definition() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                assert_eq!(product(a, b), multiply(a, b));
                let mut by_matrix = 0;
                for bit in 0..8 {
                    let row = (MATRICES[usize::from(a)] >> (8 * (7 - bit))) as u8;
                    by_matrix |= (((row & b).count_ones() & 1) as u8) << bit;
                }
                assert_eq!(by_matrix, multiply(a, b));
            }
            assert_eq!(multiply(a, inverse(a)), u8::from(a != 0));
        }
        assert_eq!([power(0), power(1), power(8), power(255), power(254)], [1, 2, REDUCTION, 1, inverse(2)]);
    }
}
