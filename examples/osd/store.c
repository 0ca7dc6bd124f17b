/*
 * Stores an object and reads it back: store SOCKET DATASET. It prints what it did, and its exit code is 0 when all of it is as it should be.
 */
#include "osd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BYTES (1u << 20)

static int failed(const char *what, int error)
{
	fprintf(stderr, "%s: %s\n", what, strerror(-error));
	return 1;
}

int main(int argc, char **argv)
{
	static struct osd_transaction transaction;
	const struct osd_fid object = {.sequence = 0x200000401, .object = 42};
	const struct osd_fid index = {.sequence = 0x200000401, .object = 43};
	const struct osd_piece all = {.memory = 0, .memory_offset = 0, .bytes = BYTES, .offset = 0};
	struct osd_client *client;
	struct osd_attributes attributes;
	uint64_t tag, told, record, count, granted = 1 << 20;
	size_t length = 16;
	uint32_t done;
	int file, is_on_disk, error;
	char value[16];
	void *memory;

	if (argc != 3) {
		fprintf(stderr, "usage: store SOCKET DATASET\n");
		return 2;
	}
	if ((error = osd_connect(argv[1], &client)) != 0)
		return failed("connect", error);
	if ((error = osd_open(client, argv[2], &record)) != 0)
		return failed("open", error);
	if ((error = osd_memory(BYTES, &file, &memory)) != 0 || (error = osd_share(client, 0, file, BYTES, OSD_DIRECT)) != 0)
		return failed("memory", error);
	if ((error = osd_grant(client, &granted)) != 0)
		return failed("grant", error);
	for (unsigned at = 0; at < BYTES; at++)
		((unsigned char *)memory)[at] = (unsigned char)(at * 31 / 7);
	osd_begin(&transaction, OSD_TELL | OSD_SPEND);
	osd_create(&transaction, object, 0640, 0, 0, 0);
	osd_create(&transaction, index, 0640, 0, 0, 1);
	osd_write(&transaction, object, &all, 1);
	osd_put(&transaction, object, BYTES, "end", 3);
	osd_set_xattr(&transaction, object, "trusted.example", "value", 5);
	osd_insert(&transaction, index, "key", "record", 6);
	if ((error = osd_commit(client, &transaction, &tag, &done)) != 0)
		return failed("commit", error);
	if ((error = osd_sync(client)) != 0 || (error = osd_next_commit(client, 0, &told, &is_on_disk)) != 0)
		return failed("sync", error);
	if (told != tag || !is_on_disk || done != 6)
		return failed("outcome", -EPROTO);
	memset(memory, 0, BYTES);
	if ((error = osd_read(client, object, &all, 1, &count)) != 0 || (error = osd_stat(client, object, &attributes)) != 0)
		return failed("read", error);
	for (unsigned at = 0; at < BYTES; at++)
		if (((unsigned char *)memory)[at] != (unsigned char)(at * 31 / 7))
			return failed("bytes", -EIO);
	if (count != BYTES || attributes.size != BYTES + 3 || attributes.mode != 0100640)
		return failed("attributes", -EIO);
	if ((error = osd_lookup(client, index, "key", value, &length)) != 0 || length != 6 || memcmp(value, "record", 6) != 0)
		return failed("lookup", error != 0 ? error : -EIO);
	osd_begin(&transaction, 0);
	osd_punch(&transaction, object, 5, OSD_TO_THE_END);
	osd_create(&transaction, object, 0, 0, 0, 0);
	if ((error = osd_commit(client, &transaction, NULL, &done)) != -EEXIST || done != 1)
		return failed("a second one", error);
	printf("records of %llu bytes, %llu granted, transaction %llu is on disk\n", (unsigned long long)record, (unsigned long long)granted,
	    (unsigned long long)tag);
	osd_close(client);
	return 0;
}
