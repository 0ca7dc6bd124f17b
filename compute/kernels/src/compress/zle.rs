//! ZLE: runs of zeros (OpenZFS: `zle.c`, level 64).
//!
//! A token byte below 64 is followed by token+1 literal bytes; a token of 64 or more stands for token−63 zeros.

const LITERALS: usize = 64;
const ZEROS: usize = 256 - LITERALS;

/// Compresses a block, and returns the bytes written; None when the result does not fit.
pub(super) fn compress(source: &[u8], target: &mut [u8]) -> Option<usize> {
    let (mut at, mut out) = (0, 0);
    while at < source.len() {
        if source[at] == 0 {
            let run = source[at..].iter().take(ZEROS).take_while(|&&byte| byte == 0).count();
            *target.get_mut(out)? = (LITERALS - 1 + run) as u8;
            out += 1;
            at += run;
        } else {
            let window = &source[at..source.len().min(at + LITERALS)];
            let pair = window.windows(2).position(|pair| pair == [0, 0]);
            // A run ends before two zeros; a lone zero at its very end starts the next run of zeros.
            let run = pair.unwrap_or(if window[window.len() - 1] == 0 { window.len() - 1 } else { window.len() });
            *target.get_mut(out)? = (run - 1) as u8;
            target.get_mut(out + 1..out + 1 + run)?.copy_from_slice(&window[..run]);
            out += 1 + run;
            at += run;
        }
    }
    Some(out)
}

/// Decompresses the whole of `target`; None when the stream is malformed.
pub(super) fn decompress(source: &[u8], target: &mut [u8]) -> Option<()> {
    let (mut at, mut out) = (0, 0);
    while out < target.len() {
        let token = usize::from(*source.get(at)?);
        at += 1;
        if token < LITERALS {
            let run = token + 1;
            target.get_mut(out..out + run)?.copy_from_slice(source.get(at..at + run)?);
            at += run;
            out += run;
        } else {
            let run = token + 1 - LITERALS;
            target.get_mut(out..out + run)?.fill(0);
            out += run;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    /// The stream is read by OpenZFS: its tokens must be OpenZFS's.
    #[test]
    fn tokens_are_those_of_openzfs() {
        let mut source = vec![1, 2, 0, 3, 0, 0];
        source.extend([0; 200]);
        source.push(9);
        let mut target = [0; 64];
        let length = super::compress(&source, &mut target).unwrap();
        assert_eq!(target[..length], [3, 1, 2, 0, 3, 255, 64 + 9, 0, 9]);
    }
}
