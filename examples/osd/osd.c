/*
 * The client of osd.h. Numbers are put into frames byte by byte, so that it is the same on every machine.
 */
#define _GNU_SOURCE
#include "osd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HEADER_BYTES 16u
#define FID_BYTES 16u
#define OPERATION_BYTES 24u
#define PIECE_BYTES 32u
#define REPLY 0x8000u
#define COMMITTED 0xc001u

enum request { HELLO = 1, OPEN, SHARE, UNSHARE, TRANSACT, READ, STAT, XATTR, XATTRS, LOOKUP, KEYS, SPACE, GRANT, GIVE_BACK, SYNC };
enum operation { CREATE = 1, DESTROY, WRITE, PUT, PUNCH, CHANGE, SET_XATTR, REMOVE_XATTR, INSERT, DELETE };

struct commit {
	struct commit *next;
	uint64_t tag;
	int is_on_disk;
};

struct osd_client {
	int socket;
	uint64_t last;
	struct commit *first;
	struct commit **end;
	/* Body of the last reply, without its status, and its length. */
	const uint8_t *content;
	uint32_t content_bytes;
	uint32_t done;
	uint8_t out[OSD_BODY_MAX];
	uint8_t in[OSD_BODY_MAX];
};

static uint8_t *put(uint8_t *at, uint64_t value, unsigned bytes)
{
	for (unsigned index = 0; index < bytes; index++)
		at[index] = (uint8_t)(value >> (8 * index));
	return at + bytes;
}

static uint64_t get(const uint8_t *at, unsigned bytes)
{
	uint64_t value = 0;
	for (unsigned index = bytes; index > 0; index--)
		value = value << 8 | at[index - 1];
	return value;
}

static uint8_t *put_fid(uint8_t *at, struct osd_fid fid)
{
	return put(put(put(at, fid.sequence, 8), fid.object, 4), fid.version, 4);
}

static uint8_t *put_pieces(uint8_t *at, const struct osd_piece *pieces, size_t count)
{
	for (size_t index = 0; index < count; index++) {
		at = put(put(at, pieces[index].memory, 4), 0, 4);
		at = put(put(at, pieces[index].memory_offset, 8), pieces[index].bytes, 8);
		at = put(at, pieces[index].offset, 8);
	}
	return at;
}

static int send_all(int socket, const uint8_t *bytes, size_t count, int file)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	while (count > 0) {
		struct iovec part = {.iov_base = (void *)bytes, .iov_len = count};
		struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
		if (file >= 0) {
			memset(&control, 0, sizeof(control));
			message.msg_control = control.room;
			message.msg_controllen = sizeof(control.room);
			struct cmsghdr *with = CMSG_FIRSTHDR(&message);
			with->cmsg_level = SOL_SOCKET;
			with->cmsg_type = SCM_RIGHTS;
			with->cmsg_len = CMSG_LEN(sizeof(int));
			memcpy(CMSG_DATA(with), &file, sizeof(int));
		}
		ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
		if (sent < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		/* It goes with the first byte, once. */
		file = -1;
		bytes += sent;
		count -= (size_t)sent;
	}
	return 0;
}

static int receive_all(int socket, uint8_t *bytes, size_t count)
{
	while (count > 0) {
		ssize_t received = recv(socket, bytes, count, 0);
		if (received == 0)
			return -ECONNRESET;
		if (received < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		bytes += received;
		count -= (size_t)received;
	}
	return 0;
}

/* Receives a frame; of the outcome of a transaction, keeps it. */
static int receive(struct osd_client *client, uint32_t *kind, uint64_t *tag, uint32_t *length)
{
	uint8_t header[HEADER_BYTES];
	int error = receive_all(client->socket, header, sizeof(header));
	if (error != 0)
		return error;
	*length = (uint32_t)get(header, 4);
	*kind = (uint32_t)get(header + 4, 2);
	*tag = get(header + 8, 8);
	if (*length > OSD_BODY_MAX)
		return -EPROTO;
	error = receive_all(client->socket, client->in, *length);
	if (error != 0 || *kind != COMMITTED)
		return error;
	struct commit *commit = malloc(sizeof(*commit));
	if (commit == NULL)
		return -ENOMEM;
	*commit = (struct commit){.tag = *tag, .is_on_disk = *length >= 4 && get(client->in, 4) == 1};
	*client->end = commit;
	client->end = &commit->next;
	return 0;
}

/* Sends a request of which `length` bytes of body are there, and waits for its reply. */
static int ask(struct osd_client *client, enum request request, uint32_t length, int file)
{
	uint8_t header[HEADER_BYTES];
	uint64_t own = ++client->last;
	put(put(put(put(header, length, 4), request, 2), 0, 2), own, 8);
	int error = send_all(client->socket, header, sizeof(header), file);
	if (error == 0)
		error = send_all(client->socket, client->out, length, -1);
	uint32_t kind = COMMITTED;
	uint64_t tag = 0;
	uint32_t bytes = 0;
	while (error == 0 && kind == COMMITTED)
		error = receive(client, &kind, &tag, &bytes);
	if (error != 0)
		return error;
	if (kind != (REPLY | request) || tag != own || bytes < 8)
		return -EPROTO;
	client->done = (uint32_t)get(client->in + 4, 4);
	client->content = client->in + 8;
	client->content_bytes = bytes - 8;
	return -(int)get(client->in, 4);
}

int osd_connect(const char *path, struct osd_client **made)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	struct osd_client *client = calloc(1, sizeof(*client));
	if (client == NULL)
		return -ENOMEM;
	client->end = &client->first;
	client->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int error = client->socket < 0 ? -errno : 0;
	if (error == 0 && connect(client->socket, (struct sockaddr *)&address, sizeof(address)) != 0)
		error = -errno;
	if (error == 0) {
		put(client->out, 1, 4);
		error = ask(client, HELLO, 4, -1);
	}
	if (error != 0) {
		osd_close(client);
		return error;
	}
	*made = client;
	return 0;
}

void osd_close(struct osd_client *client)
{
	if (client->socket >= 0)
		close(client->socket);
	while (client->first != NULL) {
		struct commit *commit = client->first;
		client->first = commit->next;
		free(commit);
	}
	free(client);
}

/* The number that a reply is, or the first of several. */
static int number(struct osd_client *client, int error, uint64_t *value)
{
	if (error != 0)
		return error;
	if (client->content_bytes < 8)
		return -EPROTO;
	if (value != NULL)
		*value = get(client->content, 8);
	return 0;
}

int osd_open(struct osd_client *client, const char *dataset, uint64_t *record_bytes)
{
	size_t length = strlen(dataset);
	if (length > OSD_BODY_MAX)
		return -ENAMETOOLONG;
	memcpy(client->out, dataset, length);
	return number(client, ask(client, OPEN, (uint32_t)length, -1), record_bytes);
}

int osd_memory(uint64_t bytes, int *file, void **address)
{
	int made = memfd_create("osd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (made < 0)
		return -errno;
	if (ftruncate(made, (off_t)bytes) == 0 && fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
		*address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
		if (*address != MAP_FAILED) {
			*file = made;
			return 0;
		}
	}
	int error = -errno;
	close(made);
	return error;
}

int osd_share(struct osd_client *client, uint32_t memory, int file, uint64_t bytes, uint32_t flags)
{
	put(put(put(client->out, memory, 4), flags, 4), bytes, 8);
	return ask(client, SHARE, 16, file);
}

int osd_unshare(struct osd_client *client, uint32_t memory)
{
	put(client->out, memory, 4);
	return ask(client, UNSHARE, 4, -1);
}

void osd_begin(struct osd_transaction *transaction, uint32_t flags)
{
	transaction->flags = flags;
	transaction->count = 0;
	transaction->used = 8;
	transaction->is_full = 0;
}

/* Room for an operation with so many bytes of its own, behind its head; NULL where there is none. */
static uint8_t *operation(struct osd_transaction *transaction, enum operation kind, struct osd_fid fid, size_t bytes)
{
	if (transaction->is_full || bytes > OSD_BODY_MAX || transaction->used + OPERATION_BYTES + bytes > OSD_BODY_MAX) {
		transaction->is_full = 1;
		return NULL;
	}
	uint8_t *at = transaction->body + transaction->used;
	transaction->used += OPERATION_BYTES + (uint32_t)bytes;
	transaction->count++;
	return put_fid(put(put(put(at, kind, 2), 0, 2), bytes, 4), fid);
}

static void put_bytes(uint8_t *at, const void *bytes, size_t count)
{
	if (count > 0)
		memcpy(at, bytes, count);
}

/* A name, behind its length, and what belongs to it. */
static void named(struct osd_transaction *transaction, enum operation kind, struct osd_fid fid, const char *name, const void *bytes, size_t count)
{
	size_t length = strlen(name);
	uint8_t *at = count > OSD_BODY_MAX ? NULL : operation(transaction, kind, fid, 8 + length + count);
	if (at == NULL) {
		transaction->is_full = 1;
		return;
	}
	at = put(put(at, length, 4), 0, 4);
	memcpy(at, name, length);
	put_bytes(at + length, bytes, count);
}

void osd_create(struct osd_transaction *transaction, struct osd_fid fid, uint32_t mode, uint32_t uid, uint32_t gid, int is_index)
{
	uint8_t *at = operation(transaction, CREATE, fid, 16);
	if (at != NULL)
		put(put(put(put(at, mode, 4), uid, 4), gid, 4), is_index != 0, 4);
}

void osd_destroy(struct osd_transaction *transaction, struct osd_fid fid)
{
	operation(transaction, DESTROY, fid, 0);
}

void osd_write(struct osd_transaction *transaction, struct osd_fid fid, const struct osd_piece *pieces, size_t count)
{
	uint8_t *at = operation(transaction, WRITE, fid, count > OSD_BODY_MAX / PIECE_BYTES ? SIZE_MAX : count * PIECE_BYTES);
	if (at != NULL)
		put_pieces(at, pieces, count);
}

void osd_put(struct osd_transaction *transaction, struct osd_fid fid, uint64_t offset, const void *bytes, size_t count)
{
	uint8_t *at = operation(transaction, PUT, fid, count > OSD_BODY_MAX ? SIZE_MAX : 8 + count);
	if (at != NULL)
		put_bytes(put(at, offset, 8), bytes, count);
}

void osd_punch(struct osd_transaction *transaction, struct osd_fid fid, uint64_t start, uint64_t end)
{
	uint8_t *at = operation(transaction, PUNCH, fid, 16);
	if (at != NULL)
		put(put(at, start, 8), end, 8);
}

void osd_set_xattr(struct osd_transaction *transaction, struct osd_fid fid, const char *name, const void *value, size_t count)
{
	named(transaction, SET_XATTR, fid, name, value, count);
}

void osd_remove_xattr(struct osd_transaction *transaction, struct osd_fid fid, const char *name)
{
	uint8_t *at = operation(transaction, REMOVE_XATTR, fid, strlen(name));
	if (at != NULL)
		put_bytes(at, name, strlen(name));
}

void osd_insert(struct osd_transaction *transaction, struct osd_fid fid, const char *key, const void *record, size_t count)
{
	named(transaction, INSERT, fid, key, record, count);
}

void osd_delete(struct osd_transaction *transaction, struct osd_fid fid, const char *key)
{
	uint8_t *at = operation(transaction, DELETE, fid, strlen(key));
	if (at != NULL)
		put_bytes(at, key, strlen(key));
}

int osd_commit(struct osd_client *client, struct osd_transaction *transaction, uint64_t *tag, uint32_t *done)
{
	if (transaction->is_full)
		return -EMSGSIZE;
	put(put(transaction->body, transaction->flags, 4), transaction->count, 4);
	memcpy(client->out, transaction->body, transaction->used);
	client->done = 0;
	int error = ask(client, TRANSACT, transaction->used, -1);
	if (tag != NULL)
		*tag = client->last;
	if (done != NULL)
		*done = client->done;
	return error;
}

int osd_next_commit(struct osd_client *client, int wait, uint64_t *tag, int *is_on_disk)
{
	while (client->first == NULL) {
		uint32_t kind, length;
		uint64_t about;
		if (!wait)
			return -EAGAIN;
		int error = receive(client, &kind, &about, &length);
		if (error != 0)
			return error;
		if (kind != COMMITTED)
			return -EPROTO;
	}
	struct commit *commit = client->first;
	client->first = commit->next;
	if (client->first == NULL)
		client->end = &client->first;
	*tag = commit->tag;
	*is_on_disk = commit->is_on_disk;
	free(commit);
	return 0;
}

int osd_sync(struct osd_client *client)
{
	return ask(client, SYNC, 0, -1);
}

int osd_read(struct osd_client *client, struct osd_fid fid, const struct osd_piece *pieces, size_t count, uint64_t *counts)
{
	if (count > (OSD_BODY_MAX - FID_BYTES - 8) / PIECE_BYTES)
		return -EMSGSIZE;
	uint8_t *at = put(put(put_fid(client->out, fid), 0, 4), 0, 4);
	at = put_pieces(at, pieces, count);
	int error = ask(client, READ, (uint32_t)(at - client->out), -1);
	if (error != 0)
		return error;
	if (client->content_bytes != 8 * count)
		return -EPROTO;
	for (size_t index = 0; counts != NULL && index < count; index++)
		counts[index] = get(client->content + 8 * index, 8);
	return 0;
}

int osd_stat(struct osd_client *client, struct osd_fid fid, struct osd_attributes *attributes)
{
	put_fid(client->out, fid);
	int error = ask(client, STAT, FID_BYTES, -1);
	if (error != 0)
		return error;
	const uint8_t *from = client->content;
	if (client->content_bytes < 24 + 4 * 16)
		return -EPROTO;
	attributes->size = get(from, 8);
	attributes->mode = (uint32_t)get(from + 8, 4);
	attributes->uid = (uint32_t)get(from + 12, 4);
	attributes->gid = (uint32_t)get(from + 16, 4);
	attributes->is_index = (uint32_t)get(from + 20, 4);
	for (unsigned index = 0; index < 4; index++) {
		attributes->times[index].seconds = (int64_t)get(from + 24 + 16 * index, 8);
		attributes->times[index].nanoseconds = (uint32_t)get(from + 32 + 16 * index, 4);
	}
	return 0;
}

/* Asks for what an object has under a name. */
static int under(struct osd_client *client, enum request request, struct osd_fid fid, const char *name, void *value, size_t *count)
{
	size_t length = strlen(name);
	if (length > OSD_BODY_MAX - FID_BYTES)
		return -ENAMETOOLONG;
	memcpy(put_fid(client->out, fid), name, length);
	int error = ask(client, request, (uint32_t)(FID_BYTES + length), -1);
	if (error != 0)
		return error;
	if (client->content_bytes > *count)
		return -ERANGE;
	*count = client->content_bytes;
	put_bytes(value, client->content, client->content_bytes);
	return 0;
}

int osd_get_xattr(struct osd_client *client, struct osd_fid fid, const char *name, void *value, size_t *count)
{
	return under(client, XATTR, fid, name, value, count);
}

int osd_lookup(struct osd_client *client, struct osd_fid fid, const char *key, void *record, size_t *count)
{
	return under(client, LOOKUP, fid, key, record, count);
}

int osd_grant(struct osd_client *client, uint64_t *bytes)
{
	put(client->out, *bytes, 8);
	return number(client, ask(client, GRANT, 8, -1), bytes);
}

int osd_give_back(struct osd_client *client, uint64_t *bytes)
{
	put(client->out, *bytes, 8);
	return number(client, ask(client, GIVE_BACK, 8, -1), bytes);
}
