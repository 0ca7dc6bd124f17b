// A machine's GPU in C++: the functions of libcuda.so.1 and libnvrtc.so that the provider calls, over kernels.cu compiled as C++.
//
// Loaded by the tests in the driver's place, so that the provider's real way to a device runs: names and types of the functions, the
// jobs as the kernels read them, and every line of the kernels. Each thread of a block that needs barriers is a fiber; a barrier is
// a switch to the next one. Work is done at once. Memory has guard bytes on both sides, looked at when it is given back.
//
// With -DWITH_HEADERS the declarations of cuda.h and nvrtc.h are seen too: a function whose type differs does not compile.

#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <ucontext.h>

#ifdef WITH_HEADERS
#include <cuda.h>
#include <nvrtc.h>
#else
typedef enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2, CUDA_ERROR_NOT_FOUND = 500 } CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef int CUdevice_attribute;
typedef enum { NVRTC_SUCCESS = 0 } nvrtcResult;
typedef struct _nvrtcProgram *nvrtcProgram;
#endif
#define API extern "C" __attribute__((visibility("default")))

// ---- what CUDA has built in ----

#define EMULATED
#define KERNEL static void
#define DEVICE static inline
#define CONSTANT static const
#define SHARED(type, name, shape) static type name shape
#define BARRIER() barrier()
#define UNROLL

struct Place {
	unsigned x, y, z;
};
static Place threadIdx, blockIdx, blockDim, gridDim;

static void barrier();
static unsigned long long atomicAdd(unsigned long long *at, unsigned long long value)
{
	const unsigned long long before = *at;
	*at += value;
	return before;
}

static unsigned atomicAdd(unsigned *at, unsigned value)
{
	const unsigned before = *at;
	*at += value;
	return before;
}

static unsigned atomicMin(unsigned *at, unsigned value)
{
	const unsigned before = *at;
	*at = value < before ? value : before;
	return before;
}
static unsigned atomicMax(unsigned *at, unsigned value)
{
	const unsigned before = *at;
	*at = value > before ? value : before;
	return before;
}
static unsigned long long atomicExch(unsigned long long *at, unsigned long long value)
{
	const unsigned long long before = *at;
	*at = value;
	return before;
}

#include "../src/kernels.cu"

// ---- launches ----

struct Known {
	const char *name;
	void (*run)(u64 jobs, u32 count);
	bool has_barriers;
};

template <class Job, void (*kernel)(const Job *, u32)> static void run(u64 jobs, u32 count) { kernel((const Job *)jobs, count); }

static const Known KNOWN[] = {
	{"fletcher4", run<SumJob, fletcher4>, true},
	{"fletcher2", run<SumJob, fletcher2>, true},
	{"sha256", run<SumJob, sha256>, false},
	{"differ", run<DifferJob, differ>, false},
	{"raid_generate", run<RaidJob, raid_generate>, false},
	{"raid_combine", run<CombineJob, raid_combine>, false},
	{"lz4_find", run<PackJob, lz4_find>, true},
	{"lz4_layout", run<PackJob, lz4_layout>, false},
	{"lz4_emit", run<PackJob, lz4_emit>, false},
	{"lz4_decode", run<UnpackJob, lz4_decode>, true},
	{"adler32", run<SumJob, adler32>, true},
	{"stream_wrap", run<WrapJob, stream_wrap>, false},
	{"stream_unwrap", run<UnwrapJob, stream_unwrap>, true},
	{"stream_confirm", run<UnwrapJob, stream_confirm>, false},
};

static std::recursive_mutex one_at_a_time;
typedef std::lock_guard<std::recursive_mutex> Lock;

static void fail(const char *why)
{
	fprintf(stderr, "emulated GPU: %s\n", why);
	abort();
}

struct Fiber {
	ucontext_t start;
	jmp_buf here;
	bool is_started, is_done;
};
static Fiber fibers[THREADS_MAX];
static char stacks[THREADS_MAX][32768];
static jmp_buf scheduler;
static unsigned current;
static const Known *running;
static u64 running_jobs;
static u32 running_count;

static void barrier()
{
	if (!_setjmp(fibers[current].here))
		_longjmp(scheduler, 1);
}

static void fiber()
{
	for (;;) {
		running->run(running_jobs, running_count);
		fibers[current].is_done = true;
		barrier();
	}
}

static void resume(unsigned thread)
{
	current = thread;
	threadIdx.x = thread;
	if (_setjmp(scheduler))
		return;
	Fiber &own = fibers[thread];
	if (own.is_started)
		_longjmp(own.here, 1);
	own.is_started = true;
	getcontext(&own.start);
	own.start.uc_stack.ss_sp = stacks[thread];
	own.start.uc_stack.ss_size = sizeof(stacks[thread]);
	own.start.uc_link = nullptr;
	makecontext(&own.start, fiber, 0);
	setcontext(&own.start);
}

// Who comes next: every other launch goes backwards, so that what depends on an order shows.
static bool is_backwards;
static unsigned ordered(unsigned turn, unsigned count) { return is_backwards ? count - 1 - turn : turn; }

static void run_block()
{
	if (!running->has_barriers) {
		for (unsigned turn = 0; turn < blockDim.x; turn++) {
			threadIdx.x = ordered(turn, blockDim.x);
			running->run(running_jobs, running_count);
		}
		return;
	}
	for (unsigned thread = 0; thread < blockDim.x; thread++)
		fibers[thread].is_done = false;
	for (unsigned done = 0; done < blockDim.x;) {
		done = 0;
		for (unsigned turn = 0; turn < blockDim.x; turn++) {
			const unsigned thread = ordered(turn, blockDim.x);
			resume(thread);
			done += fibers[thread].is_done;
		}
		if (done && done < blockDim.x)
			fail("threads of a block part at a barrier");
	}
}

API CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
			    CUstream stream, void **arguments, void **extra)
{
	Lock lock(one_at_a_time);
	if (!stream || extra || shared || gz != 1 || by != 1 || bz != 1 || bx > THREADS_MAX || !gx || gx > 0x7fffffff || !gy || gy > 65535)
		return CUDA_ERROR_INVALID_VALUE;
	running = (const Known *)f;
	running_jobs = *(u64 *)arguments[0];
	running_count = *(u32 *)arguments[1];
	gridDim = {gx, gy, gz};
	blockDim = {bx, by, bz};
	is_backwards = !is_backwards;
	for (unsigned y = 0; y < gy; y++) {
		for (unsigned x = 0; x < gx; x++) {
			blockIdx = {ordered(x, gx), ordered(y, gy), 0};
			run_block();
		}
	}
	return CUDA_SUCCESS;
}

// ---- memory ----

static const size_t GUARD = 256;
// Never destroyed: threads that end with the process may still give memory back.
static std::map<CUdeviceptr, size_t> &memory = *new std::map<CUdeviceptr, size_t>;

API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
	Lock lock(one_at_a_time);
	char *own = (char *)aligned_alloc(256, (bytes + 2 * GUARD + 255) / 256 * 256);
	if (!own)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset(own, 0xA5, bytes + 2 * GUARD);
	*address = (CUdeviceptr)(own + GUARD);
	memory[*address] = bytes;
	return CUDA_SUCCESS;
}

API CUresult cuMemFree_v2(CUdeviceptr address)
{
	Lock lock(one_at_a_time);
	const auto found = memory.find(address);
	if (found == memory.end())
		fail("memory is given back that is not there");
	unsigned char *own = (unsigned char *)address - GUARD;
	for (size_t n = 0; n < GUARD; n++)
		if (own[n] != 0xA5 || own[GUARD + found->second + n] != 0xA5)
			fail("a kernel wrote beside its memory");
	memory.erase(found);
	free(own);
	return CUDA_SUCCESS;
}

// True when the range lies in memory that is there.
static bool is_there(CUdeviceptr address, size_t bytes)
{
	auto found = memory.upper_bound(address);
	if (found == memory.begin())
		return false;
	--found;
	return address + bytes <= found->first + found->second;
}

API CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
	*address = flags ? nullptr : malloc(bytes);
	return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuMemFreeHost(void *address)
{
	free(address);
	return CUDA_SUCCESS;
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	Lock lock(one_at_a_time);
	if (!stream || !is_there(to, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy((void *)to, from, bytes);
	return CUDA_SUCCESS;
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	Lock lock(one_at_a_time);
	if (!stream || !is_there(from, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(to, (const void *)from, bytes);
	return CUDA_SUCCESS;
}

API CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char byte, size_t bytes, CUstream stream)
{
	Lock lock(one_at_a_time);
	if (!stream || !is_there(at, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	memset((void *)at, byte, bytes);
	return CUDA_SUCCESS;
}

// ---- the device, its streams and events ----

static char one_context, one_module, one_event;
static unsigned retained;

API CUresult cuInit(unsigned flags) { return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
API CUresult cuDriverGetVersion(int *version)
{
	*version = 12010;
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGetCount(int *count)
{
	*count = 1;
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGet(CUdevice *device, int number)
{
	*device = number;
	return number ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
API CUresult cuDeviceGetName(char *name, int length, CUdevice)
{
	snprintf(name, (size_t)length, "Emulated GPU");
	return CUDA_SUCCESS;
}
API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice)
{
	*bytes = 512u << 20;
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice)
{
	*value = which == 75 ? 9 : 0;
	return which == 75 || which == 76 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice)
{
	Lock lock(one_at_a_time);
	retained++;
	*context = (CUcontext)&one_context;
	return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice)
{
	Lock lock(one_at_a_time);
	if (!--retained && !memory.empty())
		fail("device memory is left");
	return CUDA_SUCCESS;
}
API CUresult cuCtxSetCurrent(CUcontext context) { return context == (CUcontext)&one_context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
API CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	*module = (CUmodule)&one_module;
	return strcmp((const char *)image, "emulated") ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
API CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
API CUresult cuModuleGetFunction(CUfunction *function, CUmodule, const char *name)
{
	for (const Known &known : KNOWN) {
		if (!strcmp(known.name, name)) {
			*function = (CUfunction)&known;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_NOT_FOUND;
}
API CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
	*stream = (CUstream)malloc(1);
	return flags == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuStreamDestroy_v2(CUstream stream)
{
	free(stream);
	return CUDA_SUCCESS;
}
API CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
API CUresult cuEventCreate(CUevent *event, unsigned flags)
{
	*event = (CUevent)&one_event;
	return flags == 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuEventRecord(CUevent event, CUstream stream) { return event && stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
API CUresult cuEventQuery(CUevent event) { return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
API CUresult cuEventDestroy_v2(CUevent) { return CUDA_SUCCESS; }

// ---- the compiler: its code is a word ----

static const char CODE[] = "emulated";
static char one_program;

API nvrtcResult nvrtcVersion(int *major, int *minor)
{
	*major = 12;
	*minor = 1;
	return NVRTC_SUCCESS;
}
API nvrtcResult nvrtcGetNumSupportedArchs(int *count)
{
	*count = 2;
	return NVRTC_SUCCESS;
}
API nvrtcResult nvrtcGetSupportedArchs(int *list)
{
	list[0] = 80;
	list[1] = 90;
	return NVRTC_SUCCESS;
}
API nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *, int headers, const char *const *, const char *const *)
{
	*program = (nvrtcProgram)&one_program;
	return (nvrtcResult)(headers || !strstr(source, "KERNEL"));
}
API nvrtcResult nvrtcCompileProgram(nvrtcProgram, int count, const char *const *options)
{
	return (nvrtcResult)(count < 1 || strcmp(options[0], "--gpu-architecture=sm_90") ? 5 : 0);
}
API nvrtcResult nvrtcDestroyProgram(nvrtcProgram *) { return NVRTC_SUCCESS; }
static nvrtcResult size_of(size_t bytes, size_t *size)
{
	*size = bytes;
	return NVRTC_SUCCESS;
}
API nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, size_t *size) { return size_of(1, size); }
API nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char *log) { return *log = 0, NVRTC_SUCCESS; }
API nvrtcResult nvrtcGetPTXSize(nvrtcProgram, size_t *size) { return size_of(sizeof(CODE), size); }
API nvrtcResult nvrtcGetPTX(nvrtcProgram, char *code) { return memcpy(code, CODE, sizeof(CODE)), NVRTC_SUCCESS; }
API nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, size_t *size) { return size_of(sizeof(CODE), size); }
API nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char *code) { return memcpy(code, CODE, sizeof(CODE)), NVRTC_SUCCESS; }
