// The kernels of the CUDA provider, in the part of CUDA C++ that is C++ too.
//
// NVRTC compiles this text for the device that is there. A C++ compiler compiles it as well (tests/emulator defines EMULATED and
// what CUDA has built in), so that every line runs, and is compared with the `kernels` crate, on machines without a GPU.
//
// Every kernel takes an array of jobs in device memory and their number: one launch serves many blocks. Jobs are structs of 64-bit
// words, mirrored in jobs.rs; addresses are those of device memory. Any address and any length will do; multiples of eight are fast.
// No kernel writes outside of what its job names. Barriers stand only where all threads of a block come by.

#ifndef EMULATED
#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ __forceinline__
#define CONSTANT static __device__ __constant__ const
#define SHARED(type, name, shape) __shared__ type name shape
#define BARRIER() __syncthreads()
// In front of a loop whose counter picks words of an array: they are in registers only when it is unrolled.
#define UNROLL _Pragma("unroll")
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Most threads of a block, for arrays that have a place for each.
#define THREADS_MAX 256

DEVICE u32 thread_number() { return blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE u32 threads() { return gridDim.x * blockDim.x; }

// ---- bytes ----

DEVICE u32 load32(const u8 *at)
{
	if (((u64)at & 3) == 0)
		return *(const u32 *)at;
	return (u32)at[0] | (u32)at[1] << 8 | (u32)at[2] << 16 | (u32)at[3] << 24;
}

// Eight bytes from `at` on, zeros for those from `length` on.
DEVICE u64 load64(const u8 *bytes, u64 at, u64 length)
{
	if (at + 8 <= length && ((u64)(bytes + at) & 7) == 0)
		return *(const u64 *)(bytes + at);
	u64 word = 0;
	for (u32 n = 0; n < 8 && at + n < length; n++)
		word |= (u64)bytes[at + n] << (8 * n);
	return word;
}

// Writes eight bytes from `at` on, but none from `length` on.
DEVICE void store64(u8 *bytes, u64 at, u64 length, u64 word)
{
	if (at + 8 <= length && ((u64)(bytes + at) & 7) == 0) {
		*(u64 *)(bytes + at) = word;
		return;
	}
	for (u32 n = 0; n < 8 && at + n < length; n++)
		bytes[at + n] = (u8)(word >> (8 * n));
}

DEVICE u32 swap32(u32 word) { return word << 24 | (word << 8 & 0xFF0000) | (word >> 8 & 0xFF00) | word >> 24; }
DEVICE u64 swap64(u64 word) { return (u64)swap32((u32)word) << 32 | swap32((u32)(word >> 32)); }

// ---- checksums: the answer is four words ----

struct SumJob {
	u64 data;
	u64 length;
	u64 swap; // 1: words are big-endian
	u64 answer;
};

// Adds four sums of each thread of the block to the answer.
DEVICE void add_sums(u64 (*sums)[THREADS_MAX], const u64 *own, u64 *answer)
{
	const u32 thread = threadIdx.x;
	for (u32 sum = 0; sum < 4; sum++)
		sums[sum][thread] = own[sum];
	BARRIER();
	if (thread < 32) {
		for (u32 sum = 0; sum < 4; sum++) {
			u64 total = 0;
			for (u32 other = thread; other < blockDim.x; other += 32)
				total += sums[sum][other];
			sums[sum][thread] = total;
		}
	}
	BARRIER();
	if (thread < 4) {
		u64 total = 0;
		for (u32 other = 0; other < 32 && other < blockDim.x; other++)
			total += sums[thread][other];
		atomicAdd(&answer[thread], total);
	}
	BARRIER();
}

// Fletcher-4: a += w, b += a, c += b, d += c for each 32-bit word. Thread k of n takes the words k, k+n, k+2n…, which gives the four
// sums of that sequence. In the sums of the whole, a word with m words after it counts C(m+i, i) times in sum i; with p of its own
// sequence after it, m = n·p + r. The thread's sums give the moments Σ C(p, i)·w, these Σ C(n·p, i)·w, and these Σ C(m+i, i)·w.
KERNEL fletcher4(const SumJob *jobs, u32 count)
{
	SHARED(u64, sums, [4][THREADS_MAX]);
	for (u32 number = blockIdx.y; number < count; number += gridDim.y) {
		const SumJob job = jobs[number];
		const u8 *data = (const u8 *)job.data;
		const u64 words = job.length / 4, n = threads(), first = thread_number();
		u64 a = 0, b = 0, c = 0, d = 0;
		for (u64 word = first; word < words; word += n) {
			const u32 value = load32(data + 4 * word);
			a += job.swap ? swap32(value) : value;
			b += a;
			c += b;
			d += c;
		}
		u64 own[4] = {0, 0, 0, 0};
		if (first < words) {
			const u64 r = (words - 1 - first) % n;
			const u64 f1 = b - a, f2 = c - 2 * f1 - a, f3 = d - 3 * f2 - 3 * f1 - a;
			const u64 pairs = n * (n - 1) / 2, triples = n < 3 ? 0 : pairs * (n - 2) / 3;
			const u64 e1 = n * f1, e2 = n * n * f2 + pairs * f1, e3 = n * n * n * f3 + n * n * (n - 1) * f2 + triples * f1;
			own[0] = a;
			own[1] = e1 + (r + 1) * a;
			own[2] = e2 + (r + 2) * e1 + (r + 1) * (r + 2) / 2 * a;
			own[3] = e3 + (r + 3) * e2 + (r + 2) * (r + 3) / 2 * e1 + (r + 1) * (r + 2) * (r + 3) / 6 * a;
		}
		add_sums(sums, own, (u64 *)job.answer);
	}
}

// Fletcher-2: two pairs of sums over alternating 64-bit words, as above with two sums each.
KERNEL fletcher2(const SumJob *jobs, u32 count)
{
	SHARED(u64, sums, [4][THREADS_MAX]);
	for (u32 number = blockIdx.y; number < count; number += gridDim.y) {
		const SumJob job = jobs[number];
		const u8 *data = (const u8 *)job.data;
		const u64 pairs = job.length / 16, n = threads(), first = thread_number();
		u64 a0 = 0, a1 = 0, b0 = 0, b1 = 0;
		for (u64 pair = first; pair < pairs; pair += n) {
			const u64 left = load64(data, 16 * pair, job.length), right = load64(data, 16 * pair + 8, job.length);
			a0 += job.swap ? swap64(left) : left;
			a1 += job.swap ? swap64(right) : right;
			b0 += a0;
			b1 += a1;
		}
		u64 own[4] = {0, 0, 0, 0};
		if (first < pairs) {
			const u64 r = (pairs - 1 - first) % n;
			own[0] = a0;
			own[1] = a1;
			own[2] = n * (b0 - a0) + (r + 1) * a0;
			own[3] = n * (b1 - a1) + (r + 1) * a1;
		}
		add_sums(sums, own, (u64 *)job.answer);
	}
}

// The sums of Adler-32 before the remainders: of all bytes, and of each byte times the bytes from it on. Both fit into 64 bits for
// blocks of up to 2^28 bytes.
KERNEL adler32(const SumJob *jobs, u32 count)
{
	SHARED(u64, sums, [4][THREADS_MAX]);
	for (u32 number = blockIdx.y; number < count; number += gridDim.y) {
		const SumJob job = jobs[number];
		u64 own[4] = {0, 0, 0, 0};
		for (u64 at = 8 * (u64)thread_number(); at < job.length; at += 8 * (u64)threads()) {
			u64 word = load64((const u8 *)job.data, at, job.length);
			for (u64 left = job.length - at; word; word >>= 8, left--) {
				own[0] += word & 255;
				own[1] += left * (word & 255);
			}
		}
		add_sums(sums, own, (u64 *)job.answer);
	}
}

CONSTANT u32 SHA256_ROUNDS[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
	0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
	0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
	0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
	0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
	0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

DEVICE u32 rotate(u32 word, u32 bits) { return word >> bits | word << (32 - bits); }

// Word `word` (big-endian) of the message with its padding: a one bit, zeros, and the length in bits at the end of the last block.
DEVICE u32 sha256_word(const u8 *data, u64 length, u64 word, u64 words)
{
	const u64 at = 4 * word;
	if (at + 4 <= length)
		return swap32(load32(data + at));
	if (word == words - 2)
		return (u32)(length >> 29);
	if (word == words - 1)
		return (u32)(length << 3);
	u32 value = 0;
	for (u32 n = 0; n < 4; n++) {
		const u64 position = at + n;
		const u32 byte = position < length ? data[position] : position == length ? 0x80 : 0;
		value = value << 8 | byte;
	}
	return value;
}

DEVICE void sha256_block(u32 *state, u32 *schedule)
{
	u32 a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
	UNROLL
	for (u32 round = 0; round < 64; round++) {
		if (round >= 16) {
			const u32 before = schedule[(round + 1) & 15], late = schedule[(round + 14) & 15];
			schedule[round & 15] += (rotate(before, 7) ^ rotate(before, 18) ^ before >> 3) + schedule[(round + 9) & 15] +
						(rotate(late, 17) ^ rotate(late, 19) ^ late >> 10);
		}
		const u32 one = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + SHA256_ROUNDS[round] +
				schedule[round & 15];
		const u32 two = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
		h = g;
		g = f;
		f = e;
		e = d + one;
		d = c;
		c = b;
		b = a;
		a = one + two;
	}
	state[0] += a;
	state[1] += b;
	state[2] += c;
	state[3] += d;
	state[4] += e;
	state[5] += f;
	state[6] += g;
	state[7] += h;
}

// Blocks of 64 bytes that lie whole in the message, at an address that is a multiple of eight: the next one is fetched while one is
// summed.
DEVICE void sha256_whole(u32 *state, const u64 *data, u64 blocks)
{
	u64 ahead[8];
	UNROLL
	for (u32 n = 0; n < 8; n++)
		ahead[n] = data[n];
	for (u64 block = 1; block <= blocks; block++) {
		u32 schedule[16];
		UNROLL
		for (u32 n = 0; n < 8; n++) {
			schedule[2 * n] = swap32((u32)ahead[n]);
			schedule[2 * n + 1] = swap32((u32)(ahead[n] >> 32));
		}
		if (block < blocks) {
			UNROLL
			for (u32 n = 0; n < 8; n++)
				ahead[n] = data[8 * block + n];
		}
		sha256_block(state, schedule);
	}
}

// SHA-256 has no parallelism within a block of data: a thread takes a job. The words are big-endian, whatever job.swap says.
KERNEL sha256(const SumJob *jobs, u32 count)
{
	for (u32 number = thread_number(); number < count; number += threads()) {
		const SumJob job = jobs[number];
		u32 state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
		const u64 words = (job.length + 9 + 63) / 64 * 16, whole = (job.data & 7) == 0 ? job.length / 64 : 0;
		if (whole)
			sha256_whole(state, (const u64 *)job.data, whole);
		for (u64 word = 16 * whole; word < words; word += 16) {
			u32 schedule[16];
			UNROLL
			for (u32 n = 0; n < 16; n++)
				schedule[n] = sha256_word((const u8 *)job.data, job.length, word + n, words);
			sha256_block(state, schedule);
		}
		u64 *answer = (u64 *)job.answer;
		UNROLL
		for (u32 n = 0; n < 4; n++)
			answer[n] = (u64)state[2 * n] << 32 | state[2 * n + 1];
	}
}

// ---- tests ----

struct DifferJob {
	u64 left;
	u64 right; // 0: zeros
	u64 length;
	u64 answer; // 1 when they differ; not written otherwise
};

KERNEL differ(const DifferJob *jobs, u32 count)
{
	for (u32 number = blockIdx.y; number < count; number += gridDim.y) {
		const DifferJob job = jobs[number];
		u64 bits = 0;
		for (u64 at = 8 * (u64)thread_number(); at < job.length; at += 8 * (u64)threads()) {
			bits = load64((const u8 *)job.left, at, job.length);
			if (job.right)
				bits ^= load64((const u8 *)job.right, at, job.length);
			if (bits)
				break;
		}
		// Whoever writes it writes the same, and at the same time.
		if (bits)
			atomicExch((u64 *)job.answer, 1);
	}
}

// ---- RAID-Z: GF(2^8), polynomial 0x11d, eight bytes at a time ----

struct Column {
	u64 address;
	u64 length;
};

DEVICE u64 twice(u64 bytes)
{
	const u64 high = bytes & 0x8080808080808080ull;
	return ((bytes ^ high) << 1) ^ (high >> 7) * 0x1d;
}

struct RaidJob {
	u64 columns; // Column[count], parity first
	u64 count;
	u64 parities;
	u64 length; // of each parity column
};

// P = sum d, Q = sum 2^(n-1-i) d, R = sum 4^(n-1-i) d by Horner's rule; short columns count as zeros beyond their ends.
KERNEL raid_generate(const RaidJob *jobs, u32 count)
{
	for (u32 number = blockIdx.y; number < count; number += gridDim.y) {
		const RaidJob job = jobs[number];
		const Column *columns = (const Column *)job.columns;
		for (u64 at = 8 * (u64)thread_number(); at < job.length; at += 8 * (u64)threads()) {
			u64 p = 0, q = 0, r = 0;
			for (u64 column = job.parities; column < job.count; column++) {
				const u64 data = load64((const u8 *)columns[column].address, at, columns[column].length);
				p ^= data;
				if (job.parities > 1)
					q = twice(q) ^ data;
				if (job.parities > 2)
					r = twice(twice(r)) ^ data;
			}
			store64((u8 *)columns[0].address, at, job.length, p);
			if (job.parities > 1)
				store64((u8 *)columns[1].address, at, job.length, q);
			if (job.parities > 2)
				store64((u8 *)columns[2].address, at, job.length, r);
		}
	}
}

struct CombineJob {
	u64 sources; // Column[source_count]
	u64 source_count;
	u64 coefficients; // u32[source_count]: a byte for each target
	u64 targets[3];	  // addresses; 0: none
	u64 start;	  // the range of bytes that is computed
	u64 end;
};

// Each target is a sum of products of the sources: any columns of a row from enough others.
KERNEL raid_combine(const CombineJob *jobs, u32 count)
{
	for (u32 number = blockIdx.y; number < count; number += gridDim.y) {
		const CombineJob job = jobs[number];
		const Column *sources = (const Column *)job.sources;
		const u32 *coefficients = (const u32 *)job.coefficients;
		for (u64 at = job.start + 8 * (u64)thread_number(); at < job.end; at += 8 * (u64)threads()) {
			u64 sums[3] = {0, 0, 0};
			for (u64 source = 0; source < job.source_count; source++) {
				u64 data = load64((const u8 *)sources[source].address, at, sources[source].length);
				// Bit by bit of all three coefficients; the same for all threads.
				for (u32 factors = coefficients[source]; factors; factors = factors >> 1 & 0x7f7f7f) {
					if (factors & 1)
						sums[0] ^= data;
					if (factors & 0x100)
						sums[1] ^= data;
					if (factors & 0x10000)
						sums[2] ^= data;
					data = twice(data);
				}
			}
			for (u32 target = 0; target < 3; target++)
				if (job.targets[target])
					store64((u8 *)job.targets[target], at, job.end, sums[target]);
		}
	}
}

// ---- LZ4 in ZFS's form: the length in four bytes, big-endian, then one LZ4 block ----
//
// Compression takes three launches. lz4_find: the threads of a block look for matches in a segment, within it and the segment before,
// each at another place, and write the sequences after its first match as they will be stored. lz4_layout: a thread per block says where each
// segment's bytes go; literals at the end of a segment belong to the next sequence, whichever segment that is in. lz4_emit: the
// bytes are put together.

#define LZ4_HEADER 4
#define LZ4_SEGMENT 8192u
#define LZ4_HASH_BITS 11
#define LZ4_MATCH_MIN 4
#define LZ4_END_LITERALS 5
#define LZ4_END_NO_MATCH 12
// Scratch memory of a segment, in bytes: its record, its sequences.
#define LZ4_RECORD 64
#define LZ4_SEQUENCES 8384u
#define LZ4_SCRATCH (LZ4_RECORD + LZ4_SEQUENCES)

struct PackJob {
	u64 source;
	u64 length;
	u64 target;
	u64 limit; // most bytes of the result
	u64 scratch; // LZ4_SCRATCH for each segment
	u64 answer; // bytes of the result, 0: more than the limit
};

struct Lz4Record {
	u32 has_match;
	u32 head; // literals of this segment before its first match
	u32 match_length; // of the first match
	u32 match_offset;
	u32 encoded; // bytes of the sequences after the first match
	u32 tail; // literals after the last match
	// What lz4_layout says.
	u32 place; // where the first sequence goes, in bytes of the result
	u32 literals_at; // where its literals begin, in bytes of the block
	u32 literals;
	// In the first record only: the last literals of the block.
	u32 last_place;
	u32 last_literals_at;
	u32 last_literals;
};

DEVICE u64 lz4_segments(u64 length) { return (length + LZ4_SEGMENT - 1) / LZ4_SEGMENT; }
DEVICE Lz4Record *lz4_record(const PackJob *job, u64 segment) { return (Lz4Record *)(job->scratch + segment * LZ4_SCRATCH); }
DEVICE u8 *lz4_sequences(const PackJob *job, u64 segment)
{
	return (u8 *)(job->scratch + segment * LZ4_SCRATCH + LZ4_RECORD);
}

// Bytes beyond the token that a count takes.
DEVICE u32 lz4_extra(u32 count) { return count < 15 ? 0 : (count - 15) / 255 + 1; }

DEVICE u8 *lz4_put_extra(u8 *out, u32 count)
{
	if (count < 15)
		return out;
	for (count -= 15; count >= 255; count -= 255)
		*out++ = 255;
	*out++ = (u8)count;
	return out;
}

DEVICE u8 lz4_token(u32 literals, u32 match) { return (u8)((literals < 15 ? literals : 15) << 4 | (match < 15 ? match : 15)); }

// Bytes of a sequence.
DEVICE u32 lz4_sequence(u32 literals, u32 match_length)
{
	return 1 + lz4_extra(literals) + literals + 2 + lz4_extra(match_length - LZ4_MATCH_MIN);
}

DEVICE u8 *lz4_put_match(u8 *out, u32 offset, u32 match_length)
{
	*out++ = (u8)offset;
	*out++ = (u8)(offset >> 8);
	return lz4_put_extra(out, match_length - LZ4_MATCH_MIN);
}

DEVICE u32 lz4_hash(u32 word) { return word * 2654435761u >> (32 - LZ4_HASH_BITS); }

// What the threads that search a segment share.
struct Lz4Search {
	u64 bytes[2 * LZ4_SEGMENT / 8]; // the segment before and this one
	u32 table[1u << LZ4_HASH_BITS]; // by hash: the last place that had it, plus one; 0: none
	u32 nearest; // the first thread that has something
	u32 place; // where its match is
};

// Four bytes at a place that need not be a multiple of anything.
DEVICE u32 lz4_word(const Lz4Search *search, u32 at)
{
	const u32 *words = (const u32 *)search->bytes, shift = 8 * (at & 3);
	return shift ? words[at / 4] >> shift | words[at / 4 + 1] << (32 - shift) : words[at / 4];
}

// The first thread for which something is true; blockDim.x: for none. All threads of the block come by.
DEVICE u32 first_thread(u32 *nearest, bool is_true)
{
	if (threadIdx.x == 0)
		*nearest = blockDim.x;
	BARRIER();
	if (is_true)
		atomicMin(nearest, threadIdx.x);
	BARRIER();
	const u32 first = *nearest;
	BARRIER();
	return first;
}

// The bytes that two places have in common, the first four of which are known; the later one ends at `end`.
DEVICE u32 lz4_common(Lz4Search *search, u32 match, u32 at, u32 end)
{
	const u8 *bytes = (const u8 *)search->bytes;
	u32 known = LZ4_MATCH_MIN, step = blockDim.x;
	while (step == blockDim.x) {
		const u32 own = known + threadIdx.x;
		step = first_thread(&search->nearest, at + own >= end || bytes[match + own] != bytes[at + own]);
		known += step;
	}
	return known;
}

// Brings the segment and the one before it to hand, and every other place of the one before into the table. How many bytes before
// the segment there are.
DEVICE u32 lz4_prepare(const PackJob *job, Lz4Search *search, u64 first, u64 end)
{
	const u32 before = first ? LZ4_SEGMENT : 0;
	const u8 *source = (const u8 *)job->source + first - before;
	const u64 length = end - first + before;
	for (u32 slot = threadIdx.x; slot < (1u << LZ4_HASH_BITS); slot += blockDim.x)
		search->table[slot] = 0;
	for (u64 word = threadIdx.x; 8 * word < length; word += blockDim.x)
		search->bytes[word] = load64(source, 8 * word, length);
	BARRIER();
	for (u32 at = 2 * threadIdx.x; at < before && at + 4 <= length; at += 2 * blockDim.x)
		atomicMax(&search->table[lz4_hash(lz4_word(search, at))], at + 1);
	BARRIER();
	return before;
}

// Where the next match is found: its later place, and the earlier one in search->place; `end` for none. Places are in search->bytes;
// the first four bytes of a match are before `match_end`, and it begins before `last`.
DEVICE u32 lz4_next(Lz4Search *search, u32 at, u32 match_end, u32 last, u32 end)
{
	for (u32 misses = 0; at + LZ4_MATCH_MIN <= match_end && at < last; misses++) {
		const u32 stride = 1 + misses / 2, own = at + threadIdx.x * stride;
		const bool is_place = own + LZ4_MATCH_MIN <= match_end && own < last;
		const u32 word = is_place ? lz4_word(search, own) : 0, slot = lz4_hash(word), found = is_place ? search->table[slot] : 0;
		const u32 winner = first_thread(&search->nearest, found && lz4_word(search, found - 1) == word);
		// Later places would be ahead of whoever searches from behind the match.
		if (is_place && threadIdx.x <= winner)
			atomicMax(&search->table[slot], own + 1);
		if (threadIdx.x == winner)
			search->place = found - 1;
		BARRIER();
		if (winner < blockDim.x)
			return at + winner * stride;
		at += blockDim.x * stride;
	}
	return end;
}

// The threads of a block copy together.
DEVICE void copy_together(u8 *target, const u8 *source, u32 count)
{
	for (u32 at = threadIdx.x; at < count; at += blockDim.x)
		target[at] = source[at];
}

DEVICE void lz4_find_segment(const PackJob *job, Lz4Search *search, u64 segment)
{
	Lz4Record *record = lz4_record(job, segment);
	u8 *sequences = lz4_sequences(job, segment), *out = sequences;
	const u64 start = segment * LZ4_SEGMENT, after = start + LZ4_SEGMENT, end_of_it = after < job->length ? after : job->length;
	const u32 first = lz4_prepare(job, search, start, end_of_it);
	// From here on places are in search->bytes: matches end before the last five bytes of the block, and begin before its last twelve.
	const u64 base = start - first;
	const u32 end = (u32)(end_of_it - base);
	const u64 ends = job->length > LZ4_END_LITERALS ? job->length - LZ4_END_LITERALS : 0;
	const u64 lasts = job->length >= LZ4_END_NO_MATCH ? job->length - LZ4_END_NO_MATCH + 1 : 0;
	const u32 match_end = ends < base ? 0 : ends < end_of_it ? (u32)(ends - base) : end;
	const u32 last = lasts < base ? 0 : lasts < end_of_it ? (u32)(lasts - base) : end;
	u32 anchor = first, has_match = 0;
	for (u32 at = lz4_next(search, first, match_end, last, end); at < end; at = lz4_next(search, anchor, match_end, last, end)) {
		const u32 match = search->place, length = lz4_common(search, match, at, match_end), literals = at - anchor;
		if (has_match) {
			u8 *bytes = out + 1 + lz4_extra(literals), *rest = bytes + literals;
			if (threadIdx.x == 0) {
				*out = lz4_token(literals, length - LZ4_MATCH_MIN);
				lz4_put_extra(out + 1, literals);
				lz4_put_match(rest, at - match, length);
			}
			copy_together(bytes, (const u8 *)search->bytes + anchor, literals);
			out = rest + 2 + lz4_extra(length - LZ4_MATCH_MIN);
		} else if (threadIdx.x == 0) {
			record->head = literals;
			record->match_length = length;
			record->match_offset = at - match;
		}
		has_match = 1;
		anchor = at + length;
	}
	if (threadIdx.x == 0) {
		record->has_match = has_match;
		record->encoded = (u32)(out - sequences);
		record->tail = end - anchor;
	}
	BARRIER();
}

KERNEL lz4_find(const PackJob *jobs, u32 count)
{
	SHARED(Lz4Search, search, );
	for (u32 number = blockIdx.y; number < count; number += gridDim.y) {
		const PackJob job = jobs[number];
		for (u64 segment = blockIdx.x; segment < lz4_segments(job.length); segment += gridDim.x)
			lz4_find_segment(&job, &search, segment);
	}
}

KERNEL lz4_layout(const PackJob *jobs, u32 count)
{
	for (u32 number = thread_number(); number < count; number += threads()) {
		const PackJob job = jobs[number];
		const u64 segments = lz4_segments(job.length);
		u64 place = LZ4_HEADER, literals_at = 0;
		for (u64 segment = 0; segment < segments; segment++) {
			Lz4Record *record = lz4_record(&job, segment);
			if (!record->has_match)
				continue;
			const u64 first = segment * LZ4_SEGMENT, after = first + LZ4_SEGMENT;
			record->place = (u32)place;
			record->literals_at = (u32)literals_at;
			record->literals = (u32)(first + record->head - literals_at);
			place += lz4_sequence(record->literals, record->match_length) + record->encoded;
			literals_at = (after < job.length ? after : job.length) - record->tail;
		}
		Lz4Record *start = lz4_record(&job, 0);
		start->last_place = (u32)place;
		start->last_literals_at = (u32)literals_at;
		start->last_literals = (u32)(job.length - literals_at);
		const u64 total = place + 1 + lz4_extra(start->last_literals) + start->last_literals;
		*(u64 *)job.answer = total <= job.limit ? total : 0;
	}
}

DEVICE void lz4_emit_segment(const PackJob *job, u64 segment)
{
	const Lz4Record *record = lz4_record(job, segment);
	if (!record->has_match)
		return;
	u8 *out = (u8 *)job->target + record->place;
	u8 *literals = out + 1 + lz4_extra(record->literals), *match = literals + record->literals;
	if (threadIdx.x == 0) {
		*out = lz4_token(record->literals, record->match_length - LZ4_MATCH_MIN);
		lz4_put_extra(out + 1, record->literals);
		lz4_put_match(match, record->match_offset, record->match_length);
	}
	copy_together(literals, (const u8 *)job->source + record->literals_at, record->literals);
	copy_together(match + 2 + lz4_extra(record->match_length - LZ4_MATCH_MIN), lz4_sequences(job, segment), record->encoded);
}

DEVICE void lz4_emit_end(const PackJob *job, u64 total)
{
	const Lz4Record *start = lz4_record(job, 0);
	u8 *header = (u8 *)job->target, *out = header + start->last_place;
	const u32 length = (u32)(total - LZ4_HEADER);
	if (threadIdx.x == 0) {
		for (u32 n = 0; n < LZ4_HEADER; n++)
			header[n] = (u8)(length >> (24 - 8 * n));
		*out = lz4_token(start->last_literals, 0);
		lz4_put_extra(out + 1, start->last_literals);
	}
	copy_together(out + 1 + lz4_extra(start->last_literals), (const u8 *)job->source + start->last_literals_at, start->last_literals);
}

KERNEL lz4_emit(const PackJob *jobs, u32 count)
{
	for (u32 number = blockIdx.y; number < count; number += gridDim.y) {
		const PackJob job = jobs[number];
		const u64 segments = lz4_segments(job.length), total = *(const u64 *)job.answer;
		if (!total)
			continue;
		for (u64 part = blockIdx.x; part <= segments; part += gridDim.x) {
			if (part < segments)
				lz4_emit_segment(&job, part);
			else
				lz4_emit_end(&job, total);
		}
	}
}

struct UnpackJob {
	u64 source;
	u64 length; // with padding
	u64 target;
	u64 target_length;
	u64 answer; // 1: the block is there; 0: the stream is malformed
};

// A block of threads decompresses a stream in turns. In each turn it has the next bytes of the stream at hand, and looks at every place of
// them as if a sequence began there; which of them are reached from the first place is found by steps that are doubled. Sums of lengths say where the
// bytes of each sequence go. Every byte of the turn is told where it comes from: the stream, the target before the turn, or another byte of the
// turn, which again is followed by doubled steps. So a turn takes as long whatever is in it.
//
// A turn ends before the first sequence that it can't do, or that is malformed. When that is the first one of a turn, all threads read it alike, and copy
// together: long sequences and the last one are done there, and only there streams are refused.

#define LZ4_WINDOW 2048u // bytes of the stream in a turn
#define LZ4_TILE 4096u	 // most bytes of the target in a turn
#define LZ4_STEPS 10	 // doubled steps through a window: a sequence has three bytes at least
#define LZ4_TRACES 12	 // doubled steps through a tile
#define LZ4_EXTRA_MAX 8u // most extra bytes of a count in a turn
#define LZ4_SHORT 24u	 // a sequence of so many bytes is copied by one thread
#define LZ4_LONG_MAX (LZ4_TILE / LZ4_SHORT)
#define LZ4_TEAM 32u // threads that copy a longer one together
#define LZ4_NONE 0xFFFFu
#define LZ4_KNOWN 0x8000u // in Lz4Turn.origin: the byte itself

// What the threads share. There are 32 of them at least, and a power of two.
struct Lz4Turn {
	u64 stream[LZ4_WINDOW / 8 + 1];
	u16 jump[2][LZ4_WINDOW]; // by place: the one that a number of sequences lead to
	u16 origin[2][LZ4_TILE]; // by byte of the target: where it comes from in this turn, or LZ4_KNOWN and what it is
	u8 reached[LZ4_WINDOW];	 // by place: 1 when a sequence of the stream begins there
	u32 sums[THREADS_MAX];
	u32 longs[LZ4_LONG_MAX]; // longer sequences: the place, times 65536, and where their bytes go
	u32 long_count;
	u32 open[LZ4_TRACES]; // by step: 1 when bytes were left that are not known
	u32 stop; // the place of the first sequence that is not of this turn
	u32 made; // bytes that the ones before it make
};

// A sequence of a window. `next` is the place after it; 0: it is none that a turn can do.
struct Lz4Sequence {
	u32 literals_at;
	u32 literals;
	u32 offset;
	u32 length;
	u32 next;
};

// Adds the extra bytes of a count; false when there are too many of them, or the window ends.
DEVICE bool lz4_add_extra(const u8 *bytes, u32 *at, u32 end, u32 *count)
{
	if (*count < 15)
		return true;
	for (u32 n = 0; n < LZ4_EXTRA_MAX && *at < end; n++) {
		const u32 byte = bytes[(*at)++];
		*count += byte;
		if (byte < 255)
			return true;
	}
	return false;
}

// The sequence that begins at a place before `end`, the window's.
DEVICE Lz4Sequence lz4_sequence_at(const u8 *bytes, u32 at, u32 end)
{
	const Lz4Sequence none = {0, 0, 0, 0, 0};
	const u32 token = bytes[at++];
	u32 literals = token >> 4, length = token & 15;
	if (!lz4_add_extra(bytes, &at, end, &literals) || literals + 2 > end - at)
		return none;
	const u32 literals_at = at;
	at += literals;
	const u32 offset = (u32)bytes[at] | (u32)bytes[at + 1] << 8;
	at += 2;
	if (!lz4_add_extra(bytes, &at, end, &length))
		return none;
	const Lz4Sequence found = {literals_at, literals, offset, length + LZ4_MATCH_MIN, at};
	return found;
}

// The sum of what the threads before this one have.
DEVICE u32 sum_before(u32 *sums, u32 own)
{
	const u32 thread = threadIdx.x;
	sums[thread] = own;
	BARRIER();
	for (u32 step = 1; step < blockDim.x; step *= 2) {
		const u32 before = thread >= step ? sums[thread - step] : 0;
		BARRIER();
		sums[thread] += before;
		BARRIER();
	}
	return sums[thread] - own;
}

// Marks the places that are reached from the first one. In each step those that are marked mark the ones twice as far away.
DEVICE void lz4_reach(Lz4Turn *turn, const u8 *bytes, u32 end)
{
	for (u32 at = threadIdx.x; at < LZ4_WINDOW; at += blockDim.x) {
		const u32 next = at < end ? lz4_sequence_at(bytes, at, end).next : 0;
		turn->jump[0][at] = (u16)(next && next < end ? next : LZ4_NONE);
		turn->reached[at] = at == 0;
	}
	BARRIER();
	for (u32 step = 0; step < LZ4_STEPS; step++) {
		const u16 *from = turn->jump[step & 1];
		u16 *to = turn->jump[(step + 1) & 1];
		u64 marking = 0;
		for (u32 at = threadIdx.x, n = 0; at < LZ4_WINDOW; at += blockDim.x, n++) {
			const u32 next = from[at];
			to[at] = next == LZ4_NONE ? (u16)LZ4_NONE : from[next];
			if (next != LZ4_NONE && turn->reached[at])
				marking |= (u64)1 << n;
		}
		BARRIER();
		for (u32 at = threadIdx.x, n = 0; at < LZ4_WINDOW; at += blockDim.x, n++)
			if (marking >> n & 1)
				turn->reached[from[at]] = 1;
		BARRIER();
	}
}

// Tells the bytes of a sequence where they come from: `lane` of `lanes` threads. `start` is where the turn begins in the target. A match that reaches
// into itself repeats its first bytes.
DEVICE void lz4_trace(Lz4Turn *turn, const u8 *bytes, const u8 *start, u32 at, u32 end, u32 made, u32 lane, u32 lanes)
{
	const Lz4Sequence sequence = lz4_sequence_at(bytes, at, end);
	u16 *origin = turn->origin[0] + made;
	for (u32 n = lane; n < sequence.literals; n += lanes)
		origin[n] = (u16)(LZ4_KNOWN | bytes[sequence.literals_at + n]);
	const u32 match = made + sequence.literals;
	origin += sequence.literals;
	for (u32 n = lane; n < sequence.length; n += lanes) {
		const u32 back = sequence.offset - (n < sequence.offset ? n : n % sequence.offset);
		origin[n] = (u16)(back <= match ? match - back : (LZ4_KNOWN | *(start - (back - match))));
	}
}

// Finds which sequences are of this turn: turn->stop and turn->made; and traces their bytes. Each thread has some places, one after the other. `place`
// bytes of the target are there, and `room` can be made.
DEVICE void lz4_admit(Lz4Turn *turn, const u8 *bytes, u32 end, const u8 *start, u64 place, u32 room)
{
	const u32 each = LZ4_WINDOW / blockDim.x, first = each * threadIdx.x;
	u32 own = 0;
	for (u32 at = first; at < first + each; at++) {
		if (!turn->reached[at])
			continue;
		const Lz4Sequence sequence = lz4_sequence_at(bytes, at, end);
		own += sequence.literals + sequence.length;
	}
	const u32 before = sum_before(turn->sums, own);
	u32 made = before;
	for (u32 at = first; at < first + each; at++) {
		if (!turn->reached[at])
			continue;
		const Lz4Sequence sequence = lz4_sequence_at(bytes, at, end);
		const u64 match = place + made + sequence.literals;
		made += sequence.literals + sequence.length;
		if (!sequence.next || !sequence.offset || sequence.offset > match || made > room)
			atomicMin(&turn->stop, at);
	}
	BARRIER();
	const u32 stop = turn->stop;
	// Nothing stopped it: the last sequence ends with the window.
	if (stop == end && threadIdx.x == blockDim.x - 1)
		turn->made = made;
	made = before;
	for (u32 at = first; at < first + each && at <= stop; at++) {
		if (!turn->reached[at])
			continue;
		if (at == stop) {
			turn->made = made;
			break;
		}
		const Lz4Sequence sequence = lz4_sequence_at(bytes, at, end);
		const u32 count = sequence.literals + sequence.length;
		if (count <= LZ4_SHORT)
			lz4_trace(turn, bytes, start, at, end, made, 0, 1);
		else
			turn->longs[atomicAdd(&turn->long_count, 1)] = at << 16 | made;
		made += count;
	}
	BARRIER();
	for (u32 number = threadIdx.x / LZ4_TEAM; number < turn->long_count; number += blockDim.x / LZ4_TEAM) {
		const u32 one = turn->longs[number];
		lz4_trace(turn, bytes, start, one >> 16, end, one & 0xFFFF, threadIdx.x % LZ4_TEAM, LZ4_TEAM);
	}
	BARRIER();
}

// Follows the bytes to where they come from, and writes them.
DEVICE void lz4_settle(Lz4Turn *turn, u8 *start, u32 made)
{
	u32 step = 0;
	bool is_open = true;
	while (is_open && step < LZ4_TRACES) {
		const u16 *from = turn->origin[step & 1];
		u16 *to = turn->origin[(step + 1) & 1];
		bool is_left = false;
		for (u32 n = threadIdx.x; n < made; n += blockDim.x) {
			u32 origin = from[n];
			if (!(origin & LZ4_KNOWN))
				origin = from[origin];
			is_left |= !(origin & LZ4_KNOWN);
			to[n] = (u16)origin;
		}
		if (is_left)
			atomicMax(&turn->open[step], 1);
		BARRIER();
		is_open = turn->open[step] != 0;
		step++;
	}
	const u16 *known = turn->origin[step & 1];
	for (u32 n = threadIdx.x; n < made; n += blockDim.x)
		start[n] = (u8)known[n];
}

// The stream, read by all threads of the block alike, and how much of the target there is.
struct Lz4Stream {
	const u8 *source;
	u64 at;
	u64 end;
	u8 *target;
	u64 place;
	u64 target_length;
};

// Does the sequences that a turn can do, of a stream that is not at its end; false when there is none.
DEVICE bool lz4_take_turn(Lz4Stream *stream, Lz4Turn *turn)
{
	// From an address that is a multiple of eight on, if that is not before the source.
	const u64 odd = (u64)(stream->source + stream->at) & 7, left = stream->end - stream->at, room_left = stream->target_length - stream->place;
	const u32 shift = odd <= stream->at ? (u32)odd : 0, end = left < LZ4_WINDOW ? (u32)left : LZ4_WINDOW;
	const u8 *first = stream->source + stream->at - shift, *bytes = (const u8 *)turn->stream + shift;
	for (u32 word = threadIdx.x; 8 * word < shift + end; word += blockDim.x)
		turn->stream[word] = load64(first, 8 * word, shift + end);
	for (u32 step = threadIdx.x; step < LZ4_TRACES; step += blockDim.x)
		turn->open[step] = 0;
	if (threadIdx.x == 0) {
		turn->long_count = 0;
		turn->stop = end;
		turn->made = 0;
	}
	BARRIER();
	const bool has_some = lz4_sequence_at(bytes, 0, end).next != 0;
	if (has_some) {
		u8 *start = stream->target + stream->place;
		lz4_reach(turn, bytes, end);
		lz4_admit(turn, bytes, end, start, stream->place, room_left < LZ4_TILE ? (u32)room_left : LZ4_TILE);
		lz4_settle(turn, start, turn->made);
		stream->at += turn->stop;
		stream->place += turn->made;
	}
	const bool is_done = has_some && turn->stop != 0;
	BARRIER();
	return is_done;
}

// A count of a token with its extra bytes; false when they reach beyond the end.
DEVICE bool lz4_take_extra(Lz4Stream *stream, u64 *count)
{
	if (*count < 15)
		return true;
	u32 byte = 255;
	while (byte == 255) {
		if (stream->at >= stream->end)
			return false;
		byte = stream->source[stream->at++];
		*count += byte;
	}
	return true;
}

// Bytes that stand `offset` before. A match that reaches into itself repeats its first bytes: nothing is read that this writes.
DEVICE void lz4_repeat(u8 *target, u64 place, u32 offset, u64 count)
{
	for (u64 n = threadIdx.x; n < count; n += blockDim.x)
		target[place + n] = target[place - offset + (n < offset ? n : (u32)n % offset)];
}

// Does one sequence, of whatever length. False when it is malformed.
DEVICE bool lz4_take_sequence(Lz4Stream *stream)
{
	const u32 token = stream->source[stream->at++];
	u64 literals = token >> 4, length = token & 15;
	if (!lz4_take_extra(stream, &literals) || literals > stream->end - stream->at || literals > stream->target_length - stream->place)
		return false;
	for (u64 n = threadIdx.x; n < literals; n += blockDim.x)
		stream->target[stream->place + n] = stream->source[stream->at + n];
	BARRIER();
	stream->at += literals;
	stream->place += literals;
	if (stream->at == stream->end)
		return true;
	if (stream->end - stream->at < 2)
		return false;
	const u32 offset = (u32)stream->source[stream->at] | (u32)stream->source[stream->at + 1] << 8;
	stream->at += 2;
	if (!lz4_take_extra(stream, &length))
		return false;
	length += LZ4_MATCH_MIN;
	if (offset == 0 || offset > stream->place || length > stream->target_length - stream->place)
		return false;
	lz4_repeat(stream->target, stream->place, offset, length);
	BARRIER();
	stream->place += length;
	return true;
}

// False when the stream is malformed.
DEVICE bool lz4_unpack(const UnpackJob *job, Lz4Turn *turn)
{
	const u8 *source = (const u8 *)job->source;
	if (job->length < LZ4_HEADER)
		return false;
	const u64 body = (u64)source[0] << 24 | (u64)source[1] << 16 | (u64)source[2] << 8 | source[3];
	if (LZ4_HEADER + body > job->length)
		return false;
	Lz4Stream stream = {source, LZ4_HEADER, LZ4_HEADER + body, (u8 *)job->target, 0, job->target_length};
	while (stream.at < stream.end)
		if (!lz4_take_turn(&stream, turn) && !lz4_take_sequence(&stream))
			return false;
	return stream.place == stream.target_length;
}

KERNEL lz4_decode(const UnpackJob *jobs, u32 count)
{
	SHARED(Lz4Turn, turn, );
	for (u32 number = blockIdx.x; number < count; number += gridDim.x) {
		const UnpackJob job = jobs[number];
		const bool is_good = lz4_unpack(&job, &turn);
		if (threadIdx.x == 0 && is_good)
			*(u64 *)job.answer = 1;
	}
}

// ---- gzip and zstd in ZFS's forms, around what NVIDIA's library makes and takes: raw deflate, and frames of zstd ----
//
// gzip: two bytes of header, raw deflate, Adler-32 (big-endian). zstd: the length and a word of level and version (both big-endian),
// then a frame without its magic number. Neither says where its padding begins; of zlib only what is not zero does.

#define ZLIB_HEADER 2
#define ZLIB_TRAILER 4
#define ADLER_BASE 65521
#define ZSTD_HEADER 8
#define ZSTD_MAGIC 0xFD2FB528u
#define ZSTD_MAGIC_BYTES 4
// Bits of the first byte of a frame: how long the field of its size is, whether it has no window, a checksum, a dictionary.
#define ZSTD_SIZE_OF_FOUR_BYTES 0x80
#define ZSTD_SIZE_OR_SINGLE 0xE0
#define ZSTD_RESERVED_OR_DICTIONARY 0x0B

struct WrapJob {
	u64 body; // what the library made
	u64 made; // where its length is
	u64 status; // where its status is (32 bits): 0 when it is good
	u64 sums; // where adler32's sums are; 0: this is zstd
	u64 length; // of the block
	u64 word; // zlib: the header; zstd: level and version
	u64 target;
	u64 limit; // most bytes of the result
	u64 answer; // bytes of the result, 0: more than the limit; then 1 when the library failed
};

struct UnwrapJob {
	u64 source;
	u64 length; // with padding
	u64 target_length;
	u64 body; // room for what the library takes: the source and 16 bytes
	u64 body_length; // where its length goes
	u64 end; // where it is kept how many bytes of the source are looked at; 0: it is malformed
	u64 made; // where the length is that the library made
	u64 status; // where its status is (32 bits): 0 when it is good
	u64 sums; // where adler32's sums of the target are; 0: this is zstd
	u64 answer; // 1: the block is there
};

DEVICE void put_big32(u8 *at, u32 word)
{
	for (u32 n = 0; n < 4; n++)
		at[n] = (u8)(word >> (24 - 8 * n));
}

DEVICE void put_little32(u8 *at, u32 word)
{
	for (u32 n = 0; n < 4; n++)
		at[n] = (u8)(word >> (8 * n));
}

DEVICE u32 get_big32(const u8 *at) { return (u32)at[0] << 24 | (u32)at[1] << 16 | (u32)at[2] << 8 | at[3]; }

// Adler-32 of `length` bytes with these sums.
DEVICE u32 adler32_of(const u64 *sums, u64 length)
{
	const u32 low = (u32)((1 + sums[0]) % ADLER_BASE), high = (u32)((length + sums[1]) % ADLER_BASE);
	return high << 16 | low;
}

KERNEL stream_wrap(const WrapJob *jobs, u32 count)
{
	for (u32 number = blockIdx.y; number < count; number += gridDim.y) {
		const WrapJob job = jobs[number];
		const u8 *body = (const u8 *)job.body;
		u8 *target = (u8 *)job.target;
		u64 *answer = (u64 *)job.answer;
		const u64 made = *(const u64 *)job.made, skipped = job.sums ? 0 : ZSTD_MAGIC_BYTES;
		const bool is_first = thread_number() == 0;
		if (*(const u32 *)job.status || made <= skipped || (!job.sums && load32(body) != ZSTD_MAGIC)) {
			if (is_first)
				answer[1] = 1;
			continue;
		}
		const u64 header = job.sums ? ZLIB_HEADER : ZSTD_HEADER, trailer = job.sums ? ZLIB_TRAILER : 0, kept = made - skipped;
		const u64 total = header + kept + trailer;
		if (total > job.limit)
			continue;
		if (is_first && job.sums) {
			target[0] = (u8)(job.word >> 8);
			target[1] = (u8)job.word;
			put_big32(target + header + kept, adler32_of((const u64 *)job.sums, job.length));
		} else if (is_first) {
			put_big32(target, (u32)kept);
			put_big32(target + 4, (u32)job.word);
		}
		if (is_first)
			answer[0] = total;
		for (u64 at = thread_number(); at < kept; at += threads())
			target[header + at] = body[skipped + at];
	}
}

// The library must be given nothing malformed: what is no stream of ours becomes an empty one, which has a wrong length.
DEVICE void unwrap_zlib(const UnwrapJob *job, u64 *ends)
{
	const u8 *source = (const u8 *)job->source;
	u8 *body = (u8 *)job->body;
	u64 end = 0;
	for (u64 at = ZLIB_HEADER + (u64)threadIdx.x; at < job->length; at += blockDim.x) {
		body[at - ZLIB_HEADER] = source[at];
		if (source[at])
			end = at + 1;
	}
	ends[threadIdx.x] = end;
	BARRIER();
	if (threadIdx.x)
		return;
	for (u32 other = 1; other < blockDim.x; other++)
		if (ends[other] > end)
			end = ends[other];
	// Deflate, a window of at most 32 KiB, no dictionary, and the header's own check.
	if (end == 0 || (source[0] & 15) != 8 || source[0] > 0x7f || (source[1] & 0x20) || ((u32)source[0] << 8 | source[1]) % 31) {
		end = 0;
		body[0] = 3;
		body[1] = 0;
		*(u64 *)job->body_length = 2;
	} else {
		// The last bytes of Adler-32 may be zeros.
		const u64 most = end + ZLIB_TRAILER;
		*(u64 *)job->body_length = (most < job->length ? most : job->length) - ZLIB_HEADER;
	}
	*(u64 *)job->end = end;
}

DEVICE void unwrap_zstd(const UnwrapJob *job)
{
	const u8 *source = (const u8 *)job->source, *frame = source + ZSTD_HEADER;
	u8 *body = (u8 *)job->body;
	const u64 length = job->length > ZSTD_HEADER + 2 ? get_big32(source) : 0;
	const bool is_good = length > 2 && length <= job->length - ZSTD_HEADER && !(frame[0] & ZSTD_RESERVED_OR_DICTIONARY);
	// ZFS leaves the block's size out of the frame. It is put there, for a library that may want it.
	const bool is_sized = is_good && (frame[0] & ZSTD_SIZE_OR_SINGLE);
	const u64 header = is_sized ? 0 : 2, place = ZSTD_MAGIC_BYTES + (is_sized ? 0 : 6);
	if (threadIdx.x == 0) {
		put_little32(body, ZSTD_MAGIC);
		if (!is_good) {
			// One segment of no bytes; a last block, raw, of no bytes.
			put_little32(body + 4, 0x00010020);
			body[8] = 0;
		} else if (!is_sized) {
			body[4] = frame[0] | ZSTD_SIZE_OF_FOUR_BYTES;
			body[5] = frame[1];
			put_little32(body + 6, (u32)job->target_length);
		}
		*(u64 *)job->body_length = is_good ? place + length - header : 9;
		*(u64 *)job->end = is_good ? ZSTD_HEADER + length : 0;
	}
	for (u64 at = header + threadIdx.x; is_good && at < length; at += blockDim.x)
		body[place + at - header] = frame[at];
}

KERNEL stream_unwrap(const UnwrapJob *jobs, u32 count)
{
	SHARED(u64, ends, [THREADS_MAX]);
	for (u32 number = blockIdx.x; number < count; number += gridDim.x) {
		const UnwrapJob job = jobs[number];
		if (job.sums)
			unwrap_zlib(&job, ends);
		else
			unwrap_zstd(&job);
		BARRIER();
	}
}

// True when the source's Adler-32 is that of the target: it ends with the last byte that is not zero, and as many zeros as it has.
DEVICE bool adler32_agrees(const UnwrapJob *job, u64 end)
{
	const u32 sum = adler32_of((const u64 *)job->sums, job->target_length);
	for (u32 zeros = 0; zeros < 4 && (sum >> (8 * zeros) & 255) == 0; zeros++)
		end++;
	return end >= ZLIB_HEADER + ZLIB_TRAILER && end <= job->length && get_big32((const u8 *)job->source + end - ZLIB_TRAILER) == sum;
}

KERNEL stream_confirm(const UnwrapJob *jobs, u32 count)
{
	for (u32 number = thread_number(); number < count; number += threads()) {
		const UnwrapJob job = jobs[number];
		const u64 end = *(const u64 *)job.end;
		if (!end || *(const u32 *)job.status || *(const u64 *)job.made != job.target_length)
			continue;
		if (!job.sums || adler32_agrees(&job, end))
			*(u64 *)job.answer = 1;
	}
}
