// nvCOMP on the emulated GPU (emulator.cpp): the functions of libnvcomp.so.6 that the provider calls, over the system's zlib and zstd.
//
// It is strict about what nvCOMP's headers demand (alignments, sizes, memory, zeroed options, a frame that says its size), spoils all
// memory that it may spoil, and does its work at once. How it misbehaves is in its own file's name: "fails-FUNCTION" has that function
// fail, "spoils-FUNCTION" gives each block of it a bad status, "version-N" and "cuda-N" are what it says of itself.
//
// With -DWITH_HEADERS the declarations of nvcomp.h are seen too: a function whose type differs does not compile.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

#ifdef WITH_HEADERS
#include <nvcomp.h>
#else
typedef enum {
	nvcompSuccess = 0,
	nvcompErrorInvalidValue = 10,
	nvcompErrorNotSupported = 11,
	nvcompErrorCannotDecompress = 12,
	nvcompErrorChunkSizeTooLarge = 18
} nvcompStatus_t;
typedef enum { NVCOMP_DECOMPRESS_BACKEND_CUDA = 2 } nvcompDecompressBackend_t;
typedef struct {
	uint32_t version, cudart_version;
} nvcompProperties_t;
typedef struct {
	size_t input, output, temp;
} nvcompAlignmentRequirements_t;
typedef struct {
	int algorithm;
	char reserved[60];
} nvcompBatchedDeflateCompressOpts_t;
typedef struct {
	nvcompDecompressBackend_t backend;
	int sort_before_hw_decompress;
	char reserved[56];
} nvcompBatchedDeflateDecompressOpts_t;
typedef struct {
	char reserved[64];
} nvcompBatchedZstdCompressOpts_t;
typedef struct {
	nvcompDecompressBackend_t backend;
	char reserved[60];
} nvcompBatchedZstdDecompressOpts_t;
typedef struct CUstream_st *cudaStream_t;
#endif
#define API extern "C" __attribute__((visibility("default")))

// ---- the libraries, whose headers need not be installed ----

struct z_stream {
	const unsigned char *next_in;
	unsigned avail_in;
	unsigned long total_in;
	unsigned char *next_out;
	unsigned avail_out;
	unsigned long total_out;
	const char *message;
	void *state, *(*zalloc)(void *, unsigned, unsigned);
	void (*zfree)(void *, void *);
	void *opaque;
	int data_type;
	unsigned long adler, reserved;
};
extern "C" {
int deflateInit2_(z_stream *, int level, int method, int window, int memory, int strategy, const char *version, int size);
int deflate(z_stream *, int flush);
int deflateEnd(z_stream *);
int inflateInit2_(z_stream *, int window, const char *version, int size);
int inflate(z_stream *, int flush);
int inflateEnd(z_stream *);
const char *zlibVersion();
size_t ZSTD_compress(void *, size_t, const void *, size_t, int level);
size_t ZSTD_decompress(void *, size_t, const void *, size_t);
unsigned ZSTD_isError(size_t);
unsigned long long ZSTD_getFrameContentSize(const void *, size_t);
}
static const int FINISH = 4, STREAM_END = 1, RAW = -15;

// ---- how it misbehaves ----

static const char *own_name()
{
	Dl_info info;
	return dladdr((void *)own_name, &info) && info.dli_fname ? info.dli_fname : "";
}

static bool does(const char *how, const char *function)
{
	const char *found = strstr(own_name(), how);
	return found && !strncmp(found + strlen(how), function, strlen(function)) && found[strlen(how) + strlen(function)] == '.';
}

static uint32_t number(const char *what, uint32_t usual)
{
	const char *found = strstr(own_name(), what);
	return found ? (uint32_t)atoi(found + strlen(what)) : usual;
}

static void demand(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "emulated nvCOMP: %s\n", what);
	abort();
}

template <class Options> static bool are_zero(const Options &options)
{
	for (char byte : options.reserved)
		if (byte)
			return false;
	return true;
}

#define FAILS                                                                                                                                  \
	if (does("fails-", __func__))                                                                                                          \
		return nvcompErrorNotSupported;

// ---- what both formats have in common ----

static const size_t CHUNK_MAX = 1u << 30;

static size_t packed_max(size_t bytes) { return bytes + bytes / 8 + 64; }
static size_t temp_of(size_t count, size_t bytes_max) { return count * 8 + bytes_max / 4; }

static nvcompStatus_t align(nvcompAlignmentRequirements_t *out, size_t input, size_t output, size_t temp)
{
	*out = {input, output, temp};
	return nvcompSuccess;
}

static nvcompStatus_t most(size_t bytes, size_t *out)
{
	*out = packed_max(bytes);
	return bytes > CHUNK_MAX ? nvcompErrorChunkSizeTooLarge : nvcompSuccess;
}

static nvcompStatus_t temp_bytes(size_t count, size_t bytes_max, size_t *out, size_t total)
{
	demand(count && bytes_max && total <= count * bytes_max && bytes_max <= total, "the sizes of a batch do not agree");
	*out = temp_of(count, bytes_max);
	return nvcompSuccess;
}

typedef size_t (*Code)(const unsigned char *source, size_t bytes, unsigned char *target, size_t room, int level);

struct Chunks {
	const void *const *sources;
	const size_t *source_bytes;
	void *const *targets;
	const size_t *rooms; // null: those of compression
	size_t *made;
	nvcompStatus_t *statuses;
	size_t count;
};

// `code` gives the bytes that it wrote, or SIZE_MAX.
static nvcompStatus_t run(const char *function, Chunks chunks, size_t input_align, size_t output_align, Code code, int level)
{
	const bool spoils = does("spoils-", function);
	for (size_t n = 0; n < chunks.count; n++) {
		const size_t room = chunks.rooms ? chunks.rooms[n] : packed_max(chunks.source_bytes[n]);
		demand((size_t)chunks.sources[n] % input_align == 0 && (size_t)chunks.targets[n] % output_align == 0, "a block is not aligned");
		memset(chunks.targets[n], 0x5A, room);
		const size_t made =
			code((const unsigned char *)chunks.sources[n], chunks.source_bytes[n], (unsigned char *)chunks.targets[n], room, level);
		chunks.made[n] = made == SIZE_MAX ? 0 : made;
		chunks.statuses[n] = spoils || made == SIZE_MAX ? nvcompErrorCannotDecompress : nvcompSuccess;
	}
	return nvcompSuccess;
}

static void take_temp(void *temp, size_t bytes, size_t count, size_t bytes_max, cudaStream_t stream)
{
	demand(stream && count && bytes >= temp_of(count, bytes_max) && (size_t)temp % 8 == 0, "a batch lacks memory or a stream");
	memset(temp, 0x5A, bytes);
}

static size_t largest(const size_t *list, size_t count)
{
	size_t most = 0;
	for (size_t n = 0; n < count; n++)
		most = list[n] > most ? list[n] : most;
	return most;
}

// ---- raw deflate ----

static size_t deflate_block(const unsigned char *source, size_t bytes, unsigned char *target, size_t room, int level)
{
	z_stream stream = {};
	demand(!deflateInit2_(&stream, level, 8, RAW, 8, 0, zlibVersion(), sizeof(stream)), "zlib cannot be used");
	stream.next_in = source, stream.avail_in = (unsigned)bytes, stream.next_out = target, stream.avail_out = (unsigned)room;
	const int end = deflate(&stream, FINISH);
	deflateEnd(&stream);
	return end == STREAM_END ? stream.total_out : SIZE_MAX;
}

static size_t inflate_block(const unsigned char *source, size_t bytes, unsigned char *target, size_t room, int)
{
	z_stream stream = {};
	demand(!inflateInit2_(&stream, RAW, zlibVersion(), sizeof(stream)), "zlib cannot be used");
	stream.next_in = source, stream.avail_in = (unsigned)bytes, stream.next_out = target, stream.avail_out = (unsigned)room;
	const int end = inflate(&stream, FINISH);
	inflateEnd(&stream);
	demand(end != STREAM_END || stream.avail_in <= 8, "padding comes after the stream");
	return end == STREAM_END ? stream.total_out : SIZE_MAX;
}

API nvcompStatus_t nvcompBatchedDeflateCompressGetRequiredAlignments(nvcompBatchedDeflateCompressOpts_t options,
								     nvcompAlignmentRequirements_t *out)
{
	FAILS
	return options.algorithm > 5 || !are_zero(options) ? nvcompErrorNotSupported : align(out, 1, 8, 8);
}

API nvcompStatus_t nvcompBatchedDeflateCompressGetMaxOutputChunkSize(size_t bytes, nvcompBatchedDeflateCompressOpts_t, size_t *out)
{
	FAILS
	return most(bytes, out);
}

API nvcompStatus_t nvcompBatchedDeflateCompressGetTempSize(size_t count, size_t bytes_max, nvcompBatchedDeflateCompressOpts_t, size_t *out,
							   size_t total, cudaStream_t)
{
	FAILS
	return temp_bytes(count, bytes_max, out, total);
}

API nvcompStatus_t nvcompBatchedDeflateCompressAsync(const void *const *sources, const size_t *source_bytes, size_t bytes_max, size_t count,
						     void *temp, size_t temp_bytes, void *const *targets, size_t *made,
						     nvcompBatchedDeflateCompressOpts_t options, nvcompStatus_t *statuses, cudaStream_t stream)
{
	FAILS
	demand(are_zero(options) && bytes_max == largest(source_bytes, count), "arguments of compression are wrong");
	take_temp(temp, temp_bytes, count, bytes_max, stream);
	const int level = options.algorithm == 2 ? 1 : options.algorithm == 4 ? 6 : 9;
	return run(__func__, {sources, source_bytes, targets, nullptr, made, statuses, count}, 1, 8, deflate_block, level);
}

API nvcompStatus_t nvcompBatchedDeflateDecompressGetRequiredAlignments(nvcompBatchedDeflateDecompressOpts_t options,
								       nvcompAlignmentRequirements_t *out)
{
	FAILS
	return options.backend != NVCOMP_DECOMPRESS_BACKEND_CUDA || !are_zero(options) ? nvcompErrorNotSupported : align(out, 4, 1, 1);
}

API nvcompStatus_t nvcompBatchedDeflateDecompressGetTempSize(size_t, size_t, nvcompBatchedDeflateDecompressOpts_t, size_t *out, size_t,
							     cudaStream_t)
{
	FAILS
	*out = 0;
	return nvcompSuccess;
}

API nvcompStatus_t nvcompBatchedDeflateDecompressAsync(const void *const *sources, const size_t *source_bytes, const size_t *rooms, size_t *made,
						       size_t count, void *const, size_t, void *const *targets,
						       nvcompBatchedDeflateDecompressOpts_t options, nvcompStatus_t *statuses,
						       cudaStream_t stream)
{
	FAILS
	demand(are_zero(options) && options.backend == NVCOMP_DECOMPRESS_BACKEND_CUDA && stream, "arguments of decompression are wrong");
	return run(__func__, {sources, source_bytes, targets, rooms, made, statuses, count}, 4, 1, inflate_block, 0);
}

// ---- zstd ----

static size_t pack_frame(const unsigned char *source, size_t bytes, unsigned char *target, size_t room, int level)
{
	const size_t made = ZSTD_compress(target, room, source, bytes, level);
	return ZSTD_isError(made) ? SIZE_MAX : made;
}

static size_t unpack_frame(const unsigned char *source, size_t bytes, unsigned char *target, size_t room, int)
{
	demand(ZSTD_getFrameContentSize(source, bytes) < UINT64_MAX - 1, "a frame does not say how large it is");
	const size_t made = ZSTD_decompress(target, room, source, bytes);
	return ZSTD_isError(made) ? SIZE_MAX : made;
}

API nvcompStatus_t nvcompBatchedZstdCompressGetRequiredAlignments(nvcompBatchedZstdCompressOpts_t options, nvcompAlignmentRequirements_t *out)
{
	FAILS
	return are_zero(options) ? align(out, 4, 1, 1) : nvcompErrorNotSupported;
}

API nvcompStatus_t nvcompBatchedZstdCompressGetMaxOutputChunkSize(size_t bytes, nvcompBatchedZstdCompressOpts_t, size_t *out)
{
	FAILS
	return most(bytes, out);
}

API nvcompStatus_t nvcompBatchedZstdCompressGetTempSize(size_t count, size_t bytes_max, nvcompBatchedZstdCompressOpts_t, size_t *out,
							size_t total, cudaStream_t)
{
	FAILS
	return temp_bytes(count, bytes_max, out, total);
}

API nvcompStatus_t nvcompBatchedZstdCompressAsync(const void *const *sources, const size_t *source_bytes, size_t bytes_max, size_t count,
						  void *temp, size_t temp_bytes, void *const *targets, size_t *made,
						  nvcompBatchedZstdCompressOpts_t options, nvcompStatus_t *statuses, cudaStream_t stream)
{
	FAILS
	demand(are_zero(options) && bytes_max == largest(source_bytes, count), "arguments of compression are wrong");
	take_temp(temp, temp_bytes, count, bytes_max, stream);
	return run(__func__, {sources, source_bytes, targets, nullptr, made, statuses, count}, 4, 1, pack_frame, 1);
}

API nvcompStatus_t nvcompBatchedZstdDecompressGetRequiredAlignments(nvcompBatchedZstdDecompressOpts_t options,
								    nvcompAlignmentRequirements_t *out)
{
	FAILS
	return options.backend != NVCOMP_DECOMPRESS_BACKEND_CUDA || !are_zero(options) ? nvcompErrorNotSupported : align(out, 1, 1, 8);
}

API nvcompStatus_t nvcompBatchedZstdDecompressGetTempSize(size_t count, size_t bytes_max, nvcompBatchedZstdDecompressOpts_t, size_t *out,
							  size_t total, cudaStream_t)
{
	FAILS
	return temp_bytes(count, bytes_max, out, total);
}

API nvcompStatus_t nvcompBatchedZstdDecompressAsync(const void *const *sources, const size_t *source_bytes, const size_t *rooms, size_t *made,
						    size_t count, void *const temp, size_t temp_bytes, void *const *targets,
						    nvcompBatchedZstdDecompressOpts_t options, nvcompStatus_t *statuses, cudaStream_t stream)
{
	FAILS
	demand(are_zero(options) && options.backend == NVCOMP_DECOMPRESS_BACKEND_CUDA, "arguments of decompression are wrong");
	take_temp(temp, temp_bytes, count, largest(rooms, count), stream);
	return run(__func__, {sources, source_bytes, targets, rooms, made, statuses, count}, 1, 1, unpack_frame, 0);
}

API nvcompStatus_t nvcompGetProperties(nvcompProperties_t *properties)
{
	*properties = {number("version-", 6000), number("cuda-", 12010)};
	return nvcompSuccess;
}
