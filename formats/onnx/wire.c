/* Unpacking of a file, and its limits, which are checked before. protobuf-c recurses without a limit and allocates a
 * struct of a hundred bytes for a message of two. So this goes through the nested messages first,
 * and bounds their depth and the memory that unpacking them takes. O(bytes). */
#include "onnx/wire.h"

#include "base/pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- Limits ---- */

typedef struct reader {
    const uint8_t *at, *end;
} reader;

static bool read_varint(reader *r, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        const uint8_t byte = *r->at++;
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return true;
    }
    return false;
}

/* Reads the payload of a field; *bytes is its size, of a varint 8. */
static bool read_payload(reader *r, unsigned wire_type, reader *payload)
{
    uint64_t bytes;
    switch (wire_type) {
    case 0:
        return read_varint(r, &bytes);
    case 1:
        bytes = 8;
        break;
    case 2:
        if (!read_varint(r, &bytes)) return false;
        break;
    case 5:
        bytes = 4;
        break;
    default:
        return false;
    }
    if (bytes > (uint64_t)(r->end - r->at)) return false;
    *payload = (reader){r->at, r->at + bytes};
    r->at += bytes;
    return true;
}

/* The memory that unpacking takes for a field, apart from its bytes, and lists of scanned
 * fields. */
#define FIELD_BYTES 64

static weft_status measure(const ProtobufCMessageDescriptor *message, reader r, int depth,
                           uint64_t *memory)
{
    if (depth > WIRE_MAX_DEPTH || message->sizeof_message > *memory) return WEFT_TOO_LARGE;
    *memory -= message->sizeof_message;
    while (r.at < r.end) {
        uint64_t tag;
        reader payload = {r.at, r.at};
        if (!read_varint(&r, &tag) || tag >> 3 == 0 || tag >> 32 ||
            !read_payload(&r, (unsigned)(tag & 7), &payload))
            return WEFT_BAD_FILE;
        if (*memory < FIELD_BYTES) return WEFT_TOO_LARGE;
        *memory -= FIELD_BYTES;
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(message, (unsigned)(tag >> 3));
        if (!field || field->type != PROTOBUF_C_TYPE_MESSAGE || (tag & 7) != 2) continue;
        const weft_status status = measure(field->descriptor, payload, depth + 1, memory);
        if (status != WEFT_OK) return status;
    }
    return WEFT_OK;
}

weft_status weft__wire_check(const ProtobufCMessageDescriptor *message, const void *data,
                             size_t bytes)
{
    const uint8_t *at = data;
    uint64_t memory = WIRE_SPARE_BYTES + WIRE_MEMORY_RATIO * (uint64_t)bytes;
    return measure(message, (reader){at, at + bytes}, 1, &memory);
}

/* ---- Unpacking ---- */

/* The bytes of a file while they are unpacked. */
typedef struct unpacking {
    void *mapped; /* NULL: the file is in memory */
    size_t bytes;
    bool failed; /* out of memory, which protobuf-c does not tell from a malformed message */
} unpacking;

#define BEFORE (2 * sizeof(void *)) /* room for the address of the allocation */

/* Copies of large data replace the pages of the file that they come from, so that both are not in
 * memory. */
static void *unpack_alloc(void *context, size_t bytes)
{
    unpacking *u = context;
    const bool large = bytes >= WIRE_LARGE;
    char *memory =
        bytes < SIZE_MAX / 2 ? malloc(BEFORE + (large ? WIRE_ALIGNMENT : 0) + bytes) : NULL;
    u->failed |= !memory;
    if (!memory) return NULL;
    if (large && u->mapped) weft__os_forget(u->mapped, u->bytes);
    char *data = memory + BEFORE;
    if (large) data += (WIRE_ALIGNMENT - (uintptr_t)data % WIRE_ALIGNMENT) % WIRE_ALIGNMENT;
    memcpy(data - BEFORE, &memory, sizeof memory);
    return data;
}

static void unpack_free(void *context, void *data)
{
    void *memory;
    (void)context;
    if (!data) return;
    memcpy(&memory, (char *)data - BEFORE, sizeof memory);
    free(memory);
}

ProtobufCMessage *weft__wire_unpack(const ProtobufCMessageDescriptor *message, const void *data,
                                    size_t bytes, void *mapped, bool *no_memory)
{
    unpacking u = {mapped, bytes, false};
    ProtobufCAllocator allocator = {unpack_alloc, unpack_free, &u};
    ProtobufCMessage *unpacked = protobuf_c_message_unpack(message, &allocator, bytes, data);
    *no_memory = u.failed;
    return unpacked;
}

void weft__wire_free(ProtobufCMessage *message)
{
    ProtobufCAllocator allocator = {unpack_alloc, unpack_free, NULL};
    protobuf_c_message_free_unpacked(message, &allocator);
}
