// The kernels on threads of this machine, one for each thread of a GPU, for ThreadSanitizer: two of a launch that touch the same bytes without a
// barrier or an atomic operation between them are found, whichever of them was first.
//
// All threads of all blocks of a launch are there together. A barrier is one for the threads of its block, a block has shared memory of its own, and
// atomic operations order nothing, as on a GPU. Every kernel runs on two blocks of data at least, and what it makes is looked at.
//
// With an argument the machine is broken, so that there is a race to be found: `no-barriers` or `no-atomics`.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <vector>

#define EMULATED
#define KERNEL static void
#define DEVICE static inline
#define CONSTANT static const
#define SHARED(type, name, shape) \
	typedef type name##_of shape; \
	name##_of &name = *(name##_of *)own->shared
#define BARRIER() barrier()
#define UNROLL

struct Place {
	unsigned x, y, z;
};
struct Block {
	alignas(16) char shared[40960];
	pthread_barrier_t barrier;
	unsigned barriers; // that its first thread came to
};
static thread_local Block *own;
static thread_local Place threadIdx, blockIdx;
static Place blockDim, gridDim;
static bool has_barriers = true, has_atomics = true;

static void barrier()
{
	if (threadIdx.x == 0)
		own->barriers++;
	if (has_barriers)
		pthread_barrier_wait(&own->barrier);
}

static unsigned long long atomicAdd(unsigned long long *at, unsigned long long value)
{
	if (has_atomics)
		return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
	const unsigned long long before = *at;
	*at = before + value;
	return before;
}

static unsigned atomicAdd(unsigned *at, unsigned value) { return __atomic_fetch_add(at, value, __ATOMIC_RELAXED); }

static unsigned long long atomicExch(unsigned long long *at, unsigned long long value)
{
	return __atomic_exchange_n(at, value, __ATOMIC_RELAXED);
}

static unsigned atomicMin(unsigned *at, unsigned value)
{
	unsigned before = __atomic_load_n(at, __ATOMIC_RELAXED);
	while (value < before && !__atomic_compare_exchange_n(at, &before, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
	}
	return before;
}

static unsigned atomicMax(unsigned *at, unsigned value)
{
	unsigned before = __atomic_load_n(at, __ATOMIC_RELAXED);
	while (value > before && !__atomic_compare_exchange_n(at, &before, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
	}
	return before;
}

#include "../src/kernels.cu"

// ---- launches ----

static void fail(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static void check(bool is_right, const char *what)
{
	if (!is_right && has_barriers && has_atomics)
		fail(what);
}

template <class Job> struct Task {
	void (*kernel)(const Job *, u32);
	const std::vector<Job> *jobs;
	Block *block;
	Place place;
	unsigned thread;
	pthread_t id;
};

template <class Job> static void *begin(void *given)
{
	const Task<Job> *task = (const Task<Job> *)given;
	own = task->block;
	blockIdx = task->place;
	threadIdx = {task->thread, 0, 0};
	task->kernel(task->jobs->data(), (u32)task->jobs->size());
	return nullptr;
}

static unsigned launches;
// Most barriers that a block came to in the last launch.
static unsigned barriers;

template <class Job> static void launch(void (*kernel)(const Job *, u32), const std::vector<Job> &jobs, unsigned x, unsigned y, unsigned threads)
{
	launches++;
	gridDim = {x, y, 1};
	blockDim = {threads, 1, 1};
	std::vector<Block> blocks(x * y);
	std::vector<Task<Job>> tasks;
	for (unsigned number = 0; number < x * y; number++) {
		memset(blocks[number].shared, 0xA5, sizeof(blocks[number].shared));
		blocks[number].barriers = 0;
		pthread_barrier_init(&blocks[number].barrier, nullptr, threads);
		for (unsigned thread = 0; thread < threads; thread++)
			tasks.push_back({kernel, &jobs, &blocks[number], {number % x, number / x, 0}, thread, {}});
	}
	for (Task<Job> &task : tasks)
		if (pthread_create(&task.id, nullptr, begin<Job>, &task))
			fail("no thread can be made");
	for (Task<Job> &task : tasks)
		pthread_join(task.id, nullptr);
	barriers = 0;
	for (Block &block : blocks) {
		barriers = block.barriers > barriers ? block.barriers : barriers;
		pthread_barrier_destroy(&block.barrier);
	}
}

// ---- data ----

typedef std::vector<u8> Bytes;
typedef std::vector<u64> Words;

static Bytes sample(u64 length, u64 seed)
{
	static const char WORDS[] = "a block of a pool, its parity and its checksum; ";
	Bytes bytes(length);
	u64 state = seed * 2 + 1;
	for (u64 n = 0; n < length; n++) {
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		bytes[n] = n % 512 < 64 ? (u8)(state >> 56) : (u8)WORDS[(n + n / 900) % (sizeof(WORDS) - 1)];
	}
	return bytes;
}

// Words in any order: a match ends where the next word differs, so there are many short ones.
static Bytes prose(u64 length, u64 seed)
{
	static const char *const WORDS[] = {"checksums ", "raidz rows ", "compressed ", "providers; ", "sequences, ", "literals of ", "a resilver ", "deadlines "};
	Bytes bytes;
	for (u64 state = seed * 2 + 1; bytes.size() < length;) {
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		const char *word = WORDS[state >> 61];
		bytes.insert(bytes.end(), word, word + strlen(word));
	}
	bytes.resize(length);
	return bytes;
}

template <class Value> static u64 at(const std::vector<Value> &list) { return (u64)list.data(); }

static u64 word_of(const Bytes &bytes, u64 from, u32 count, bool is_big)
{
	u64 word = 0;
	for (u32 n = 0; n < count; n++)
		word |= (u64)bytes[from + n] << 8 * (is_big ? count - 1 - n : n);
	return word;
}

// ---- the kernels, each beside a simple way to the same ----

static void sums()
{
	for (const u64 length : {20000u, 64u}) {
		const Bytes one = sample(length, 1), two = sample(length, 2);
		for (u32 kind = 0; kind < 3; kind++) {
			Words answers[2] = {Words(4), Words(4)};
			const std::vector<SumJob> jobs = {{at(one), length, 0, at(answers[0])}, {at(two), length, 1, at(answers[1])}};
			launch(kind == 0 ? fletcher4 : kind == 1 ? fletcher2 : adler32, jobs, 3, 2, 64);
			for (u32 job = 0; job < 2; job++) {
				const Bytes &bytes = job ? two : one;
				Words wanted(4);
				for (u64 n = 0; kind == 0 && n < length; n += 4) {
					wanted[0] += word_of(bytes, n, 4, job);
					for (u32 sum = 1; sum < 4; sum++)
						wanted[sum] += wanted[sum - 1];
				}
				for (u64 n = 0; kind == 1 && n < length; n += 8) {
					wanted[n / 8 % 2] += word_of(bytes, n, 8, job);
					wanted[2 + n / 8 % 2] += wanted[n / 8 % 2];
				}
				for (u64 n = 0; kind == 2 && n < length; n++) {
					wanted[0] += bytes[n];
					wanted[1] += (length - n) * bytes[n];
				}
				check(answers[job] == wanted, "a sum is wrong");
			}
		}
	}
}

static void digests()
{
	const Bytes text = {'a', 'b', 'c'}, large = sample(3000, 3);
	std::vector<Words> answers(70, Words(4));
	std::vector<SumJob> jobs;
	for (u32 job = 0; job < 70; job++)
		jobs.push_back({at(job ? large : text), job ? 3000u - job / 2 : 3u, 0, at(answers[job])});
	launch(sha256, jobs, 2, 1, 32);
	const Words abc = {0xba7816bf8f01cfeaull, 0x414140de5dae2223ull, 0xb00361a396177a9cull, 0xb410ff61f20015adull};
	check(answers[0] == abc && answers[2] == answers[3] && answers[2] != answers[4], "a digest is wrong");
}

static void comparisons()
{
	const Bytes one = sample(9001, 4), two = sample(9001, 5), zeros(9001);
	Words answers(4);
	const std::vector<DifferJob> jobs = {
		{at(one), at(two), 9001, at(answers)},
		{at(one), at(one), 9001, at(answers) + 8},
		{at(zeros), 0, 9001, at(answers) + 16},
		{at(two), 0, 9001, at(answers) + 24},
	};
	launch(differ, jobs, 3, 2, 64);
	check(answers == Words({1, 0, 0, 1}), "a comparison is wrong");
}

static u8 doubled(u8 byte) { return (u8)(byte << 1 ^ (byte & 0x80 ? 0x1d : 0)); }

static void parity()
{
	const u64 length = 3001;
	std::vector<RaidJob> jobs;
	std::vector<CombineJob> combined;
	std::vector<Bytes> columns[2];
	std::vector<Column> tables[2];
	Bytes made[2][3];
	const std::vector<u32> coefficients(4, 0x030201);
	for (u32 job = 0; job < 2; job++) {
		for (u32 column = 0; column < 7; column++)
			columns[job].push_back(column < 3 ? Bytes(length) : sample(column == 6 ? length - 1000 : length, 10 * job + column));
		for (const Bytes &column : columns[job])
			tables[job].push_back({at(column), column.size()});
		jobs.push_back({at(tables[job]), 7, 3, length});
		for (Bytes &target : made[job])
			target.resize(length);
		const u64 sources = at(tables[job]) + 3 * sizeof(Column);
		combined.push_back({sources, 4, at(coefficients), {at(made[job][0]), at(made[job][1]), at(made[job][2])}, 0, length});
	}
	launch(raid_generate, jobs, 3, 2, 64);
	launch(raid_combine, combined, 3, 2, 64);
	for (u32 job = 0; job < 2; job++) {
		for (u64 n = 0; n < length; n++) {
			u8 p = 0, q = 0, r = 0, twofold = 0;
			for (u32 column = 3; column < 7; column++) {
				const u8 data = n < columns[job][column].size() ? columns[job][column][n] : 0;
				p ^= data;
				q = doubled(q) ^ data;
				r = doubled(doubled(r)) ^ data;
				twofold ^= doubled(data);
			}
			check(columns[job][0][n] == p && columns[job][1][n] == q && columns[job][2][n] == r, "a parity is wrong");
			check(made[job][0][n] == p && made[job][1][n] == twofold && made[job][2][n] == (p ^ twofold), "a column is wrong");
		}
	}
}

static void blocks()
{
	const u64 length = 40001, segments = (length + LZ4_SEGMENT - 1) / LZ4_SEGMENT;
	std::vector<PackJob> jobs;
	std::vector<UnpackJob> packed;
	Bytes sources[2], targets[2], scratch[2], back[2];
	Words answers(4);
	for (u32 job = 0; job < 2; job++) {
		sources[job] = job ? prose(length, 21) : sample(length, 20);
		targets[job].resize(length);
		back[job].resize(length);
		scratch[job].resize(segments * LZ4_SCRATCH);
		jobs.push_back({at(sources[job]), length, at(targets[job]), length, at(scratch[job]), at(answers) + 8 * job});
	}
	launch(lz4_find, jobs, 2, 2, 32);
	launch(lz4_layout, jobs, 1, 1, 32);
	launch(lz4_emit, jobs, (unsigned)segments + 1, 2, 32);
	for (u32 job = 0; job < 2; job++) {
		check(answers[job] > LZ4_HEADER && answers[job] < length / 2, "a block does not shrink");
		packed.push_back({at(targets[job]), answers[job], at(back[job]), length, at(answers) + 16 + 8 * job});
	}
	launch(lz4_decode, packed, 2, 1, 64);
	check(barriers < length / 16, "a block is decompressed one sequence after the other");
	check(answers[2] == 1 && answers[3] == 1 && back[0] == sources[0] && back[1] == sources[1], "a block comes back wrong");
}

// A stream as the library makes it: deflate with one stored block, or a frame of zstd.
static Bytes body_of(const Bytes &block, bool is_zstd)
{
	const u32 length = (u32)block.size();
	Bytes body = {1, (u8)length, (u8)(length >> 8), (u8)~length, (u8)(~length >> 8)};
	if (is_zstd)
		body = {0x28, 0xB5, 0x2F, 0xFD, 0, 0x58, (u8)(length << 3 | 1), (u8)(length >> 5), (u8)(length >> 13)};
	body.insert(body.end(), block.begin(), block.end());
	return body;
}

static void streams()
{
	Bytes plain[2], bodies[2], stored[2], taken[2];
	Words sums[2] = {Words(4), Words(4)}, made(2), wrapped(4), lengths(2), ends(2), whole(2), confirmed(2);
	std::vector<u32> status(2);
	std::vector<WrapJob> wraps;
	std::vector<UnwrapJob> unwraps;
	std::vector<SumJob> summed;
	for (u32 job = 0; job < 2; job++) {
		plain[job] = sample(5000, 30 + job);
		bodies[job] = body_of(plain[job], job);
		made[job] = bodies[job].size();
		whole[job] = plain[job].size();
		stored[job].resize(6000);
		taken[job].resize(6000 + 16);
		summed.push_back({at(plain[job]), 5000, 0, at(sums[job])});
		wraps.push_back({at(bodies[job]), at(made) + 8 * job, at(status) + 4 * job, job ? 0 : at(sums[0]), 5000, job ? 0x0A0B0C03u : 0x789Cu,
				 at(stored[job]), 5900, at(wrapped) + 16 * job});
		unwraps.push_back({at(stored[job]), 6000, 5000, at(taken[job]), at(lengths) + 8 * job, at(ends) + 8 * job, at(whole) + 8 * job,
				   at(status) + 4 * job, job ? 0 : at(sums[0]), at(confirmed) + 8 * job});
	}
	launch(adler32, summed, 2, 2, 64);
	launch(stream_wrap, wraps, 2, 2, 64);
	launch(stream_unwrap, unwraps, 2, 1, 64);
	launch(stream_confirm, unwraps, 1, 1, 32);
	check(wrapped[0] == 5005 + 6 && wrapped[2] == 5005 + 8 && !wrapped[1] && !wrapped[3], "a stream is wrapped wrongly");
	check(!memcmp(taken[0].data(), bodies[0].data(), bodies[0].size()), "a deflated stream comes back wrong");
	check(!memcmp(&taken[1][10], &bodies[1][6], bodies[1].size() - 6) && lengths[1] == bodies[1].size() + 4, "a frame comes back wrong");
	check(confirmed[0] == 1 && confirmed[1] == 1, "a stream is not confirmed");
}

int main(int count, char **arguments)
{
	if (count > 1) {
		has_barriers = strcmp(arguments[1], "no-barriers") != 0;
		has_atomics = strcmp(arguments[1], "no-atomics") != 0;
		if (has_barriers && has_atomics)
			fail("no-barriers or no-atomics");
		sums();
		return 0;
	}
	sums();
	digests();
	comparisons();
	parity();
	blocks();
	streams();
	printf("%u launches\n", launches);
	return 0;
}
