/*
 * The interface of accelerators ("providers") for Zirconia, in C. Version 1.
 *
 * A provider is a shared object with one exported function, zirconia_provider_open. It offers device memory and operations on
 * it: copies, zeros, compression, checksums, RAID-Z parity, writes. Nothing it says is trusted: every capability is compared with
 * software before it is used, results are sampled afterwards, and an operation that fails or hangs is switched off.
 *
 * Work arrives as programs: short lists of operations ("nodes") over views of device buffers, whose effects must be those of
 * running them in order. A node can name the result of a compression of the same program, so that {copy in, compress, pad,
 * checksum} is one program. Every program is answered once, with host->complete, at any time and from any thread, also from
 * inside submit.
 *
 * Who owns what
 *   - Buffers and stores are yours; the host names them by the pointers that you gave. It frees each one once, when no program
 *     names it any more. After shut_down it calls nothing any more, and what was not freed is yours to forget.
 *   - Programs, nodes, and everything they point to belong to the host and stay until you answered the program.
 *   - Host memory of copies may be used between submit and the answer, not after it. When host->given_up says that nobody waits
 *     any more, answer soon: memory of the host's users is held until you do.
 *   - All functions may be called by many threads at once, and must not wait for other programs.
 *
 * Compatibility: the version is the first field of each table. Tables only grow at their end; size says how long yours is.
 */
#ifndef ZIRCONIA_PROVIDER_H
#define ZIRCONIA_PROVIDER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ZP_VERSION 1u

/* Answers. Anything else counts as ZP_FAILED. */
enum zp_status {
	ZP_OK = 0,
	ZP_NOT_IMPLEMENTED = 1, /* there is no such operation or algorithm */
	ZP_NOT_SUPPORTED = 2,	/* not for this size, alignment or shape */
	ZP_FAILED = 3,		/* it was tried, and failed */
	ZP_NO_MEMORY = 4,	/* no device memory left */
	ZP_DOWN = 5,		/* the device is dead */
	ZP_IO = 6,		/* a write failed: see zp_result.error_number */
	ZP_SKIPPED = 7		/* not tried, because a node before it failed */
};

/* Operations. */
enum zp_op {
	ZP_COPY_IN = 0,		  /* host -> target */
	ZP_COPY_OUT = 1,	  /* source -> host; value: bytes copied */
	ZP_ZERO_FILL = 2,	  /* zeros -> target */
	ZP_ZERO_TEST = 3,	  /* value: 1 when every byte of source is zero, else 0 */
	ZP_COMPRESS = 4,	  /* source -> target; value: bytes, or 0 when the block is stored as it is (see zp_node) */
	ZP_DECOMPRESS = 5,	  /* source (perhaps padded) -> the whole of target */
	ZP_CHECKSUM = 6,	  /* of source, into zp_result.checksum */
	ZP_RAID_GENERATE = 7,	  /* data columns -> parity columns */
	ZP_RAID_RECONSTRUCT = 8, /* the columns named by lost, in place, from the others */
	ZP_COMPARE = 9,		  /* value: 1 when source and target differ, else 0 */
	ZP_STORE = 10,		  /* source -> store at offset; value: bytes written */
	ZP_FLUSH = 11		  /* what was written to store becomes durable */
};

/*
 * Algorithms have the numbers of the on-disk format: compression lzjb 3, gzip-1..9 5..13, zle 14, lz4 15, zstd 16; checksum
 * fletcher2 6, fletcher4 7, sha256 8, sha512 11. Compressed blocks have the form that is stored: lz4 with its length in front
 * (big-endian, 4 bytes), gzip as a zlib stream, zstd with OpenZFS's 8-byte header and without magic.
 */

/* A part of a device buffer, in bytes. */
struct zp_view {
	void *buffer;
	uint64_t offset;
	uint64_t length;
};

/* What an operand is. */
enum zp_operand_kind {
	ZP_VIEW = 0,	/* view */
	ZP_RESULT = 1,	/* what is stored after compression `node`: its target from the start, the length rounded up to round_to;
			   its source when it answered 0 */
	ZP_PADDING = 2	/* the target of compression `node` from its length to the rounded length; nothing when it answered 0 */
};

struct zp_operand {
	uint32_t kind; /* enum zp_operand_kind */
	uint32_t node;
	struct zp_view view;
};

/* Host memory. */
struct zp_piece {
	void *bytes; /* for ZP_COPY_IN: not to be written to */
	uint64_t length;
};

/* One operation. Fields that an operation does not need are zero. */
struct zp_node {
	uint32_t op;	     /* enum zp_op */
	uint32_t algorithm;
	uint32_t level;	     /* zstd: on-disk level */
	uint32_t big_endian; /* checksum: 1 when the data is read as big-endian words */
	struct zp_operand source;
	struct zp_operand target;
	const struct zp_piece *pieces; /* copies: host memory, in order; for ZP_COPY_OUT perhaps more than is needed */
	uint64_t pieces_count;
	uint64_t limit;	   /* compression: more bytes than this are not worth it: answer 0 */
	uint64_t round_to; /* compression: when the length rounded up to this is not less than the source's: answer 0 */
	void *store;
	uint64_t offset; /* ZP_STORE: where in the store, in bytes */
	/* Rows: columns, parity first (P, Q, R), then data; shorter data columns count as zeros beyond their end. */
	const struct zp_view *columns;
	uint32_t columns_count;
	uint32_t parity_count;
	const uint32_t *lost; /* ZP_RAID_RECONSTRUCT: ascending indices of columns */
	uint64_t lost_count;
};

/* The answer to one node. */
struct zp_result {
	int32_t status; /* enum zp_status */
	int32_t error_number;
	uint64_t value;
	uint64_t checksum[4]; /* the words of a block pointer's checksum */
	uint64_t device_ns;   /* how long the device worked on it, for statistics; 0 when unknown */
};

struct zp_program {
	void *cookie; /* for the host's functions */
	const struct zp_node *nodes;
	uint64_t nodes_count;
};

/* One thing that a provider can do. It is tested, and switched off, by itself. */
struct zp_capability {
	uint32_t op;	    /* enum zp_op; ZP_STORE stands for ZP_FLUSH too */
	uint32_t algorithm; /* compression, decompression, checksum */
	uint32_t level_min; /* zstd: on-disk levels; else 0 */
	uint32_t level_max;
	uint32_t big_endian;	/* checksum */
	uint32_t scatter;	/* copies: 1 when several pieces of host memory are taken */
	uint32_t parity_count;	/* rows: 1, 2 or 3 */
	uint32_t data_columns_max; /* rows */
	uint32_t store_kind;	/* ZP_STORE: 0 file, 1 disk */
	uint32_t reserved;	/* 0 */
	uint64_t size_min;	/* operands, in bytes */
	uint64_t size_max;	/* 0: no limit */
	uint64_t align;		/* operands: length and offset in the buffer are multiples; 0: none */
};

/* Device memory, counted: now and ever. */
struct zp_memory {
	uint64_t active_buffers, active_requested, active_actual;
	uint64_t total_buffers, total_requested, total_actual;
};

/* What the host offers. Valid for ever. */
struct zp_host {
	uint32_t version; /* ZP_VERSION */
	uint32_t size;	  /* sizeof (struct zp_host) of the host */
	/* Answers a program, once; count is that of its nodes. A second answer is ignored. */
	void (*complete)(void *cookie, const struct zp_result *results, uint64_t count);
	/* Optional: says that work on a program begins, for the queue time. */
	void (*started)(void *cookie);
	/* 1 when nobody waits for the program any more: what is left of it need not be done. */
	int (*given_up)(void *cookie);
};

/* What a provider offers. Filled in by zirconia_provider_open; strings and functions stay valid for ever. */
struct zp_provider {
	uint32_t version;  /* ZP_VERSION */
	uint32_t size;	   /* sizeof (struct zp_provider) of the provider */
	const char *name;  /* letters, digits, - _ . */
	const char *about; /* its version, for people */
	void *self;	   /* passed to all functions */
	uint64_t graphs_max; /* most programs at a time; 0: 256 */
	uint64_t bytes_max;  /* most bytes of operands at a time; 0: 1 GiB */

	/* Writes up to max entries, returns how many there are: 1024 at most. Called twice when the library is loaded, first with max 0; who then
	 * returns more than before is refused. An entry that is there twice counts once. */
	uint64_t (*capabilities)(void *self, struct zp_capability *list, uint64_t max);
	/* Device memory with any contents; bytes > 0. ZP_OK, or why not. */
	int32_t (*alloc)(void *self, uint64_t bytes, void **buffer);
	void (*free)(void *self, void *buffer);
	/* Takes programs in order; returns how many of them it took (the rest is refused: the queue is full). */
	uint64_t (*submit)(void *self, const struct zp_program *programs, uint64_t count);

	/* The rest may be NULL. */

	/* Opens a file (kind 0) or disk (kind 1) for writing. ZP_OK, or why not. */
	int32_t (*store_open)(void *self, uint32_t kind, const char *path, void **store);
	void (*store_close)(void *self, void *store);
	void (*memory)(void *self, struct zp_memory *memory);
	/* No call follows. Programs that were not answered should be. */
	void (*shut_down)(void *self);
};

/*
 * The one exported function. Fills in *provider, which is zero. Returns ZP_OK, or why there is no device: ZP_NOT_SUPPORTED when
 * the versions do not fit.
 */
#define ZIRCONIA_PROVIDER_OPEN "zirconia_provider_open"
int32_t zirconia_provider_open(const struct zp_host *host, struct zp_provider *provider);

#if defined(__LP64__) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
_Static_assert(sizeof(struct zp_operand) == 32, "zp_operand");
_Static_assert(sizeof(struct zp_node) == 160, "zp_node");
_Static_assert(sizeof(struct zp_result) == 56, "zp_result");
_Static_assert(sizeof(struct zp_capability) == 64, "zp_capability");
_Static_assert(sizeof(struct zp_host) == 32, "zp_host");
_Static_assert(sizeof(struct zp_provider) == 112, "zp_provider");
#endif

#ifdef __cplusplus
}
#endif

#endif
