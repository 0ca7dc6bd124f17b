/*
 * A provider that uses every part of the interface: results of compressions as operands, rows with lost columns, files and disks,
 * memory statistics, and answers from a thread of its own. For the test of the interface only.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "zirconia/provider.h"

#define ZLE 14u
#define FLETCHER_4 7u
#define QUEUE 64

static const struct zp_host *host;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct zp_program queue[QUEUE];
static unsigned queued;
static int stopping;
static struct zp_memory counts;

struct buffer {
	uint64_t bytes;
	unsigned char data[];
};

static const struct zp_capability offered[] = {
	{.op = ZP_COPY_IN, .scatter = 1},
	{.op = ZP_COPY_OUT, .scatter = 1},
	{.op = ZP_ZERO_FILL},
	{.op = ZP_ZERO_TEST},
	{.op = ZP_COMPARE},
	{.op = ZP_COMPRESS, .algorithm = ZLE, .size_min = 512, .size_max = 1 << 20},
	{.op = ZP_DECOMPRESS, .algorithm = ZLE},
	{.op = ZP_CHECKSUM, .algorithm = FLETCHER_4, .big_endian = 0, .align = 4},
	{.op = ZP_CHECKSUM, .algorithm = FLETCHER_4, .big_endian = 1, .align = 4},
	{.op = ZP_RAID_GENERATE, .parity_count = 1, .data_columns_max = 64},
	{.op = ZP_RAID_RECONSTRUCT, .parity_count = 1, .data_columns_max = 64},
	{.op = ZP_STORE, .store_kind = 0},
	{.op = ZP_STORE, .store_kind = 1},
	{.op = 99},
};
#define OFFERED (sizeof(offered) / sizeof(offered[0]))
/* A test of numbers that cannot be gives others. */
#ifndef SAID_AT_FIRST
#define SAID_AT_FIRST OFFERED
#endif
#ifndef SAID_AT_LAST
#define SAID_AT_LAST OFFERED
#endif

static uint64_t capabilities(void *self, struct zp_capability *list, uint64_t max)
{
	(void)self;
	for (uint64_t n = 0; n < OFFERED && n < max; n++)
		list[n] = offered[n];
	return max ? SAID_AT_LAST : SAID_AT_FIRST;
}

static int32_t buffer_alloc(void *self, uint64_t bytes, void **out)
{
	(void)self;
	struct buffer *buffer = malloc(sizeof(*buffer) + bytes);
	if (!buffer)
		return ZP_NO_MEMORY;
	buffer->bytes = bytes;
	pthread_mutex_lock(&lock);
	counts.active_buffers++;
	counts.total_buffers++;
	counts.active_requested += bytes;
	counts.total_requested += bytes;
	pthread_mutex_unlock(&lock);
	*out = buffer;
	return ZP_OK;
}

static void buffer_free(void *self, void *buffer)
{
	(void)self;
	pthread_mutex_lock(&lock);
	counts.active_buffers--;
	counts.active_requested -= ((struct buffer *)buffer)->bytes;
	pthread_mutex_unlock(&lock);
	free(buffer);
}

static void memory(void *self, struct zp_memory *out)
{
	(void)self;
	pthread_mutex_lock(&lock);
	*out = counts;
	pthread_mutex_unlock(&lock);
}

/* Bytes on the device. */
struct span {
	unsigned char *bytes;
	uint64_t length;
};

static struct span of_view(const struct zp_view *view)
{
	struct span span = {((struct buffer *)view->buffer)->data + view->offset, view->length};
	return span;
}

static struct span resolve(const struct zp_program *program, const struct zp_result *results, const struct zp_operand *operand)
{
	if (operand->kind == ZP_VIEW)
		return of_view(&operand->view);
	const struct zp_node *compression = &program->nodes[operand->node];
	uint64_t length = results[operand->node].value;
	uint64_t stored = (length + compression->round_to - 1) / compression->round_to * compression->round_to;
	struct span span = of_view(&compression->target.view);
	if (length == 0) {
		span = of_view(&compression->source.view);
		if (operand->kind == ZP_PADDING)
			span.length = 0;
	} else if (operand->kind == ZP_PADDING) {
		span.bytes += length;
		span.length = stored - length;
	} else {
		span.length = stored;
	}
	return span;
}

static uint64_t compress(struct span from, unsigned char *to, uint64_t room)
{
	uint64_t at = 0, out = 0;
	while (at < from.length) {
		uint64_t run = 0;
		if (from.bytes[at] == 0) {
			while (run < 192 && at + run < from.length && from.bytes[at + run] == 0)
				run++;
			if (out + 1 > room)
				return 0;
			to[out++] = (unsigned char)(63 + run);
		} else {
			while (run < 64 && at + run < from.length && from.bytes[at + run] != 0)
				run++;
			if (out + 1 + run > room)
				return 0;
			to[out++] = (unsigned char)(run - 1);
			memcpy(to + out, from.bytes + at, run);
			out += run;
		}
		at += run;
	}
	return out;
}

static int32_t decompress(struct span from, struct span to)
{
	uint64_t at = 0, out = 0;
	while (out < to.length) {
		if (at >= from.length)
			return ZP_FAILED;
		uint64_t token = from.bytes[at++];
		uint64_t run = token < 64 ? token + 1 : token - 63;
		if (out + run > to.length || (token < 64 && at + run > from.length))
			return ZP_FAILED;
		if (token < 64) {
			memcpy(to.bytes + out, from.bytes + at, run);
			at += run;
		} else {
			memset(to.bytes + out, 0, run);
		}
		out += run;
	}
	return ZP_OK;
}

static void fletcher(struct span from, int big, uint64_t *sum)
{
	memset(sum, 0, 4 * sizeof(*sum));
	for (uint64_t n = 0; n + 4 <= from.length; n += 4) {
		const unsigned char *b = from.bytes + n;
		uint32_t little = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
		uint32_t large = (uint32_t)b[3] | (uint32_t)b[2] << 8 | (uint32_t)b[1] << 16 | (uint32_t)b[0] << 24;
		sum[0] += big ? large : little;
		sum[1] += sum[0];
		sum[2] += sum[1];
		sum[3] += sum[2];
	}
}

/* With one parity column any column is the sum of the others. */
static int32_t row(const struct zp_node *node, uint32_t lost)
{
	if (node->parity_count != 1)
		return ZP_NOT_IMPLEMENTED;
	struct span target = of_view(&node->columns[lost]);
	memset(target.bytes, 0, target.length);
	for (uint32_t n = 0; n < node->columns_count; n++) {
		struct span other = of_view(&node->columns[n]);
		for (uint64_t byte = 0; n != lost && byte < other.length && byte < target.length; byte++)
			target.bytes[byte] ^= other.bytes[byte];
	}
	return ZP_OK;
}

static int32_t copy(const struct zp_node *node, struct span span, int in)
{
	for (uint64_t n = 0, at = 0; n < node->pieces_count && at < span.length; n++) {
		uint64_t count = node->pieces[n].length < span.length - at ? node->pieces[n].length : span.length - at;
		memcpy(in ? (void *)(span.bytes + at) : node->pieces[n].bytes, in ? node->pieces[n].bytes : (void *)(span.bytes + at), count);
		at += count;
	}
	return ZP_OK;
}

static int32_t run(const struct zp_program *program, uint64_t number, struct zp_result *results)
{
	const struct zp_node *node = &program->nodes[number];
	struct zp_result *result = &results[number];
	int has_source = node->source.kind != ZP_VIEW || node->source.view.buffer;
	int has_target = node->target.kind != ZP_VIEW || node->target.view.buffer;
	struct span none = {NULL, 0};
	struct span source = has_source ? resolve(program, results, &node->source) : none;
	struct span target = has_target ? resolve(program, results, &node->target) : none;
	int fd = (int)(intptr_t)node->store - 1;
	switch (node->op) {
	case ZP_COPY_IN:
		return copy(node, target, 1);
	case ZP_COPY_OUT:
		result->value = source.length;
		return copy(node, source, 0);
	case ZP_ZERO_FILL:
		memset(target.bytes, 0, target.length);
		return ZP_OK;
	case ZP_ZERO_TEST:
		result->value = 1;
		for (uint64_t n = 0; n < source.length; n++)
			result->value &= source.bytes[n] == 0;
		return ZP_OK;
	case ZP_COMPARE:
		result->value = memcmp(source.bytes, target.bytes, source.length) != 0;
		return ZP_OK;
	case ZP_COMPRESS:
		result->value = compress(source, target.bytes, node->limit < target.length ? node->limit : target.length);
		if ((result->value + node->round_to - 1) / node->round_to * node->round_to >= source.length)
			result->value = 0;
		return ZP_OK;
	case ZP_DECOMPRESS:
		return decompress(source, target);
	case ZP_CHECKSUM:
		fletcher(source, node->big_endian, result->checksum);
		return ZP_OK;
	case ZP_RAID_GENERATE:
		return row(node, 0);
	case ZP_RAID_RECONSTRUCT:
		return node->lost_count == 1 ? row(node, node->lost[0]) : ZP_NOT_SUPPORTED;
	case ZP_STORE:
		if (pwrite(fd, source.bytes, source.length, (off_t)node->offset) != (ssize_t)source.length) {
			result->error_number = errno;
			return ZP_IO;
		}
		result->value = source.length;
		return ZP_OK;
	case ZP_FLUSH:
		result->error_number = fsync(fd) ? errno : 0;
		return result->error_number ? ZP_IO : ZP_OK;
	default:
		return ZP_NOT_IMPLEMENTED;
	}
}

static void *work(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&lock);
	while (!stopping || queued > 0) {
		if (queued == 0) {
			pthread_cond_wait(&changed, &lock);
			continue;
		}
		struct zp_program program = queue[0];
		memmove(queue, queue + 1, --queued * sizeof(queue[0]));
		int dead = stopping;
		pthread_mutex_unlock(&lock);
		host->started(program.cookie);
		struct zp_result *results = calloc(program.nodes_count, sizeof(*results));
		int32_t status = dead || host->given_up(program.cookie) ? ZP_DOWN : ZP_OK;
		for (uint64_t n = 0; results && n < program.nodes_count; n++) {
			results[n].status = status == ZP_OK ? run(&program, n, results) : status;
			results[n].device_ns = 7;
			if (status == ZP_OK && results[n].status != ZP_OK)
				status = ZP_SKIPPED;
		}
		host->complete(program.cookie, results, results ? program.nodes_count : 0);
		free(results);
		pthread_mutex_lock(&lock);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static uint64_t submit(void *self, const struct zp_program *programs, uint64_t count)
{
	uint64_t taken = 0;
	(void)self;
	pthread_mutex_lock(&lock);
	while (taken < count && queued < QUEUE)
		queue[queued++] = programs[taken++];
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
	return taken;
}

static int32_t store_open(void *self, uint32_t kind, const char *path, void **store)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	(void)self;
	(void)kind;
	*store = (void *)(intptr_t)(fd + 1);
	return fd < 0 ? ZP_IO : ZP_OK;
}

static void store_close(void *self, void *store)
{
	(void)self;
	close((int)(intptr_t)store - 1);
}

static void shut_down(void *self)
{
	(void)self;
	pthread_mutex_lock(&lock);
	stopping = 1;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
}

int32_t zirconia_provider_open(const struct zp_host *the_host, struct zp_provider *provider)
{
	pthread_t thread;
	if (the_host->version != ZP_VERSION)
		return ZP_NOT_SUPPORTED;
	host = the_host;
	if (pthread_create(&thread, NULL, work, NULL) != 0)
		return ZP_FAILED;
	pthread_detach(thread);
	provider->version = ZP_VERSION;
	provider->size = sizeof(*provider);
	provider->name = "full";
	provider->about = "test";
	provider->graphs_max = 32;
	provider->capabilities = capabilities;
	provider->alloc = buffer_alloc;
	provider->free = buffer_free;
	provider->submit = submit;
	provider->store_open = store_open;
	provider->store_close = store_close;
	provider->memory = memory;
	provider->shut_down = shut_down;
	return ZP_OK;
}
