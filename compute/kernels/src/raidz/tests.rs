//! Every implementation against the reference, and the reference against itself: what is lost comes back.

use super::*;

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Column lengths of a row: equal, big columns first, one nearly empty, odd lengths.
fn shapes(columns: usize) -> Vec<Vec<usize>> {
    let mut shapes = vec![vec![512; columns], vec![1; columns], vec![63; columns], vec![1000; columns]];
    shapes.push((0..columns).map(|n| if n < columns.div_ceil(2) { 1536 } else { 1024 }).collect());
    shapes.push((0..columns).map(|n| if n == 0 { 700 } else { 0 }).collect());
    shapes.push((0..columns).map(|n| 900usize.saturating_sub(n * 97)).collect());
    shapes
}

struct Fixture {
    data: Vec<Vec<u8>>,
    parity: Vec<Vec<u8>>,
    start: usize,
}

impl Fixture {
    /// Columns that start `start` bytes into their allocation, with parity by the reference.
    fn new(lengths: &[usize], start: usize) -> Fixture {
        let data: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(n, length)| noise(n as u64 + 1, start + length)).collect();
        let longest = lengths.iter().max().copied().unwrap_or(0);
        let mut parity = vec![vec![0; start + longest]; 3];
        let columns: Vec<&[u8]> = data.iter().map(|column| &column[start..]).collect();
        let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|column| &mut column[start..]).collect();
        reference::generate(&columns, &mut targets);
        Fixture { data, parity, start }
    }
    fn columns(&self) -> Vec<&[u8]> {
        self.data.iter().map(|column| &column[self.start..]).collect()
    }
}

fn subsets(of: usize, most: usize) -> Vec<Vec<usize>> {
    (1u32..1 << of).filter(|set| set.count_ones() as usize <= most).map(|set| (0..of).filter(|n| set >> n & 1 != 0).collect()).collect()
}

fn supported() -> impl Iterator<Item = &'static &'static Implementation> {
    ALL.iter().filter(|one| one.is_supported())
}

/// Parity written with one implementation must be what every other machine, and OpenZFS, expects.
#[test]
fn parity_equals_the_reference() {
    for columns in [1, 2, 3, 4, 5, 8, 17, 40] {
        for lengths in shapes(columns) {
            for start in [0, 1, 64] {
                let row = Fixture::new(&lengths, start);
                for one in supported() {
                    for parities in 1..=3 {
                        let mut parity = vec![vec![0x55; row.parity[0].len()]; parities];
                        let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|column| &mut column[start..]).collect();
                        one.generate(&row.columns(), &mut targets).unwrap();
                        for (made, right) in parity.iter().zip(&row.parity) {
                            assert!(made[start..] == right[start..], "{} {columns} {lengths:?} {start} of {parities}", one.name);
                            assert!(made[..start].iter().all(|&byte| byte == 0x55), "{} wrote before its target", one.name);
                        }
                    }
                }
            }
        }
    }
}

fn recover(
    row: &Fixture,
    lost: &[usize],
    parities: &[usize],
    by: impl Fn(&[Option<&[u8]>], &[Option<&[u8]>], &mut [&mut [u8]]) -> Result<(), RaidzError>,
) -> Vec<Vec<u8>> {
    let data: Vec<Option<&[u8]>> = row.columns().into_iter().enumerate().map(|(n, c)| (!lost.contains(&n)).then_some(c)).collect();
    let parity: Vec<Option<&[u8]>> = (0..3).map(|n| parities.contains(&n).then_some(&row.parity[n][row.start..])).collect();
    let mut made: Vec<Vec<u8>> = lost.iter().map(|&n| vec![0x55; row.data[n].len() - row.start]).collect();
    let mut missing: Vec<&mut [u8]> = made.iter_mut().map(|column| &mut column[..]).collect();
    by(&data, &parity, &mut missing).unwrap();
    made
}

/// Any loss that the parity can bear must give back the user's bytes, with whichever parity columns are left.
#[test]
fn every_loss_within_parity_comes_back() {
    for columns in [1, 2, 3, 4, 6, 17] {
        let losses = subsets(columns, 3);
        for (shape, lengths) in shapes(columns).into_iter().enumerate() {
            let row = Fixture::new(&lengths, shape % 3);
            for lost in losses.iter().filter(|lost| columns < 17 || lost.iter().sum::<usize>() % 11 == 0) {
                for parities in subsets(3, 3).iter().filter(|parities| parities.len() >= lost.len()) {
                    let right: Vec<&[u8]> = lost.iter().map(|&n| &row.data[n][row.start..]).collect();
                    for one in supported() {
                        let made = recover(&row, lost, parities, |data, parity, missing| one.reconstruct(data, parity, missing));
                        assert!(made == right, "{} {lengths:?} lost {lost:?} with {parities:?}", one.name);
                    }
                }
            }
        }
    }
}

/// The reference itself is checked: its elimination gives back what was lost.
#[test]
fn the_reference_recovers_too() {
    let row = Fixture::new(&[40, 40, 36, 30, 30], 0);
    for lost in subsets(5, 3) {
        for parities in subsets(3, 3).iter().filter(|parities| parities.len() >= lost.len()) {
            let made = recover(&row, &lost, parities, reference::reconstruct);
            assert!(lost.iter().zip(&made).all(|(&n, column)| row.data[n] == *column), "{lost:?} with {parities:?}");
        }
    }
}

/// The widest rows use other tables; losing three columns of 255 must work as well.
#[test]
fn the_widest_row_works() {
    let row = Fixture::new(&[130; DATA_COLUMNS_MAX], 0);
    for one in supported() {
        let made = recover(&row, &[0, 100, 254], &[0, 1, 2], |data, parity, missing| one.reconstruct(data, parity, missing));
        assert!(made == [&row.data[0][..], &row.data[100], &row.data[254]], "{}", one.name);
        let mut parity = vec![vec![0; 130]; 3];
        let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|column| &mut column[..]).collect();
        one.generate(&row.columns(), &mut targets).unwrap();
        assert!(parity == row.parity, "{}", one.name);
    }
}

/// A wrong call must be refused before any byte is touched, not corrupt a column.
#[test]
fn impossible_rows_are_refused() {
    let column = [1u8; 64];
    let mut short = [0u8; 32];
    let mut out = [0u8; 64];
    assert_eq!(generate(&[], &mut [&mut out]), Err(RaidzError::Shape));
    assert_eq!(generate(&[&column], &mut [&mut short]), Err(RaidzError::Shape));
    assert_eq!(generate(&[&column], &mut []), Err(RaidzError::Shape));
    assert_eq!(reconstruct(&[None, Some(&column)], &[None, None, None], &mut [&mut out]), Err(RaidzError::TooFewColumns));
    assert_eq!(reconstruct(&[None, Some(&column)], &[Some(&column)], &mut []), Err(RaidzError::Shape));
    assert_eq!(reconstruct(&[None, Some(&column)], &[Some(&column[..10])], &mut [&mut out]), Err(RaidzError::Shape));
    assert_eq!(reconstruct(&[Some(&column)], &[], &mut []), Ok(()));
}
