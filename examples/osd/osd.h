/*
 * A client of object storage devices (docs/osd-protocol.md), in plain C: one connection, one request at a time.
 *
 * Functions return 0, or a negative error number of Linux: -EPROTO where the server does not keep to the protocol. What the server says of
 * transactions that are on disk is kept until osd_next_commit asks for it. A client is used by one thread at a time.
 */
#ifndef ZIRCONIA_OSD_H
#define ZIRCONIA_OSD_H

#include <stddef.h>
#include <stdint.h>

#define OSD_BODY_MAX 65536u
#define OSD_TO_THE_END UINT64_MAX

/* Flags of memory and of transactions. */
#define OSD_DIRECT 1u
#define OSD_TELL 1u
#define OSD_SPEND 2u

struct osd_client;

struct osd_fid {
	uint64_t sequence;
	uint32_t object;
	uint32_t version;
};

/* Part of a vector: bytes of an object, and the memory that they come from or go to. */
struct osd_piece {
	uint32_t memory;
	uint64_t memory_offset;
	uint64_t bytes;
	uint64_t offset;
};

struct osd_time {
	int64_t seconds;
	uint32_t nanoseconds;
};

struct osd_attributes {
	uint64_t size;
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
	uint32_t is_index;
	/* Access, modification, change, birth. */
	struct osd_time times[4];
};

/* Transaction that is being put together; a call that finds no room for its operation has osd_commit say -EMSGSIZE. */
struct osd_transaction {
	uint32_t flags;
	uint32_t count;
	uint32_t used;
	int is_full;
	uint8_t body[OSD_BODY_MAX];
};

/* Connects to the socket at a path, and greets the server. */
int osd_connect(const char *path, struct osd_client **client);
/* Ends a connection: what the client shared and was granted goes with it. */
void osd_close(struct osd_client *client);
/* Opens the device on a dataset; record_bytes may be NULL. */
int osd_open(struct osd_client *client, const char *dataset, uint64_t *record_bytes);

/* Makes memory of whole pages, sealed as the server wants it, and maps it; munmap(2) and close(2) end it. */
int osd_memory(uint64_t bytes, int *file, void **address);
/* Shares memory under a number below 64; with OSD_DIRECT the devices may get its pages themselves. */
int osd_share(struct osd_client *client, uint32_t number, int file, uint64_t bytes, uint32_t flags);
int osd_unshare(struct osd_client *client, uint32_t number);

void osd_begin(struct osd_transaction *transaction, uint32_t flags);
void osd_create(struct osd_transaction *transaction, struct osd_fid fid, uint32_t mode, uint32_t uid, uint32_t gid, int is_index);
void osd_destroy(struct osd_transaction *transaction, struct osd_fid fid);
void osd_write(struct osd_transaction *transaction, struct osd_fid fid, const struct osd_piece *pieces, size_t count);
void osd_put(struct osd_transaction *transaction, struct osd_fid fid, uint64_t offset, const void *bytes, size_t count);
/* Frees bytes; up to OSD_TO_THE_END the object ends at start. */
void osd_punch(struct osd_transaction *transaction, struct osd_fid fid, uint64_t start, uint64_t end);
void osd_set_xattr(struct osd_transaction *transaction, struct osd_fid fid, const char *name, const void *value, size_t count);
void osd_remove_xattr(struct osd_transaction *transaction, struct osd_fid fid, const char *name);
void osd_insert(struct osd_transaction *transaction, struct osd_fid fid, const char *key, const void *record, size_t count);
void osd_delete(struct osd_transaction *transaction, struct osd_fid fid, const char *key);
/* Performs a transaction; tag, which may be NULL, is what osd_next_commit says. With an error, the first *done operations were performed. */
int osd_commit(struct osd_client *client, struct osd_transaction *transaction, uint64_t *tag, uint32_t *done);
/* Next transaction that is on disk, or never will be; waits for it, if wait is not 0; else -EAGAIN where none has come. */
int osd_next_commit(struct osd_client *client, int wait, uint64_t *tag, int *is_on_disk);
/* Waits until everything so far is on disk. */
int osd_sync(struct osd_client *client);

/* Reads pieces into shared memory; counts, which may be NULL, gets how many bytes of each there were. */
int osd_read(struct osd_client *client, struct osd_fid fid, const struct osd_piece *pieces, size_t count, uint64_t *counts);
int osd_stat(struct osd_client *client, struct osd_fid fid, struct osd_attributes *attributes);
/* Value of an extended attribute, and record of a key; *count is the room for it, and its length then. */
int osd_get_xattr(struct osd_client *client, struct osd_fid fid, const char *name, void *value, size_t *count);
int osd_lookup(struct osd_client *client, struct osd_fid fid, const char *key, void *record, size_t *count);
/* Reserves bytes, or gives them back; *bytes is how many were granted, or still are. */
int osd_grant(struct osd_client *client, uint64_t *bytes);
int osd_give_back(struct osd_client *client, uint64_t *bytes);

#endif
