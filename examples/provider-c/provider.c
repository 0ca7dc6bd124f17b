/*
 * An example of a provider: a device that copies, zeroes, computes Fletcher-4 and the parity of RAID-Z1, in plain C.
 *
 * Its "device memory" is ordinary memory and its "device" the calling thread, so programs are answered before submit returns. A real
 * one would queue them, and answer from its own thread. Build: see the Makefile.
 */
#include <stdlib.h>
#include <string.h>

#include "zirconia/provider.h"

#define FLETCHER_4 7u

static const struct zp_host *host;

static const struct zp_capability offered[] = {
	{.op = ZP_COPY_IN, .scatter = 1},
	{.op = ZP_COPY_OUT, .scatter = 1},
	{.op = ZP_ZERO_FILL},
	{.op = ZP_CHECKSUM, .algorithm = FLETCHER_4, .align = 4},
	{.op = ZP_RAID_GENERATE, .parity_count = 1, .data_columns_max = 255},
};
#define OFFERED (sizeof(offered) / sizeof(offered[0]))

static uint64_t capabilities(void *self, struct zp_capability *list, uint64_t max)
{
	(void)self;
	for (uint64_t n = 0; n < OFFERED && n < max; n++)
		list[n] = offered[n];
	return OFFERED;
}

static int32_t buffer_alloc(void *self, uint64_t bytes, void **buffer)
{
	(void)self;
	*buffer = malloc(bytes);
	return *buffer ? ZP_OK : ZP_NO_MEMORY;
}

static void buffer_free(void *self, void *buffer)
{
	(void)self;
	free(buffer);
}

static unsigned char *at(const struct zp_view *view)
{
	return (unsigned char *)view->buffer + view->offset;
}

/* Without compression, operands are always views. */
static int32_t copy_in(const struct zp_node *node)
{
	unsigned char *to = at(&node->target.view);
	for (uint64_t n = 0; n < node->pieces_count; n++) {
		memcpy(to, node->pieces[n].bytes, node->pieces[n].length);
		to += node->pieces[n].length;
	}
	return ZP_OK;
}

static int32_t copy_out(const struct zp_node *node, struct zp_result *result)
{
	const unsigned char *from = at(&node->source.view);
	uint64_t left = node->source.view.length;
	for (uint64_t n = 0; n < node->pieces_count && left > 0; n++) {
		uint64_t count = node->pieces[n].length < left ? node->pieces[n].length : left;
		memcpy(node->pieces[n].bytes, from, count);
		from += count;
		left -= count;
	}
	result->value = node->source.view.length;
	return ZP_OK;
}

static int32_t checksum(const struct zp_node *node, struct zp_result *result)
{
	const unsigned char *from = at(&node->source.view);
	uint64_t a = 0, b = 0, c = 0, d = 0;
	if (node->algorithm != FLETCHER_4 || node->big_endian)
		return ZP_NOT_IMPLEMENTED;
	for (uint64_t n = 0; n + 4 <= node->source.view.length; n += 4) {
		uint32_t word = (uint32_t)from[n] | (uint32_t)from[n + 1] << 8 | (uint32_t)from[n + 2] << 16 | (uint32_t)from[n + 3] << 24;
		a += word;
		b += a;
		c += b;
		d += c;
	}
	result->checksum[0] = a;
	result->checksum[1] = b;
	result->checksum[2] = c;
	result->checksum[3] = d;
	return ZP_OK;
}

static int32_t generate(const struct zp_node *node)
{
	if (node->parity_count != 1)
		return ZP_NOT_IMPLEMENTED;
	unsigned char *parity = at(&node->columns[0]);
	memset(parity, 0, node->columns[0].length);
	for (uint32_t n = 1; n < node->columns_count; n++) {
		const unsigned char *data = at(&node->columns[n]);
		for (uint64_t byte = 0; byte < node->columns[n].length; byte++)
			parity[byte] ^= data[byte];
	}
	return ZP_OK;
}

static int32_t run(const struct zp_node *node, struct zp_result *result)
{
	if (node->source.kind != ZP_VIEW || node->target.kind != ZP_VIEW)
		return ZP_NOT_SUPPORTED;
	switch (node->op) {
	case ZP_COPY_IN:
		return copy_in(node);
	case ZP_COPY_OUT:
		return copy_out(node, result);
	case ZP_ZERO_FILL:
		memset(at(&node->target.view), 0, node->target.view.length);
		return ZP_OK;
	case ZP_CHECKSUM:
		return checksum(node, result);
	case ZP_RAID_GENERATE:
		return generate(node);
	default:
		return ZP_NOT_IMPLEMENTED;
	}
}

static uint64_t submit(void *self, const struct zp_program *programs, uint64_t count)
{
	(void)self;
	for (uint64_t n = 0; n < count; n++) {
		/* Copied: answering the program gives its nodes back. */
		struct zp_program program = programs[n];
		struct zp_result *results = calloc(program.nodes_count, sizeof(*results));
		int32_t status = ZP_OK;
		if (!results)
			return n;
		host->started(program.cookie);
		for (uint64_t i = 0; i < program.nodes_count; i++) {
			/* Simple: after a failure nothing more is tried. */
			results[i].status = status == ZP_OK ? run(&program.nodes[i], &results[i]) : ZP_SKIPPED;
			if (status == ZP_OK)
				status = results[i].status;
		}
		host->complete(program.cookie, results, program.nodes_count);
		free(results);
	}
	return count;
}

int32_t zirconia_provider_open(const struct zp_host *the_host, struct zp_provider *provider)
{
	if (the_host->version != ZP_VERSION)
		return ZP_NOT_SUPPORTED;
	host = the_host;
	provider->version = ZP_VERSION;
	provider->size = sizeof(*provider);
	provider->name = "example";
	provider->about = "1.0";
	provider->capabilities = capabilities;
	provider->alloc = buffer_alloc;
	provider->free = buffer_free;
	provider->submit = submit;
	return ZP_OK;
}
