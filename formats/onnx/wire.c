/* Limits of a file before it is unpacked. protobuf-c recurses without a limit and allocates a
 * struct of a hundred bytes for a message of two. So this goes through the nested messages first,
 * and bounds their depth and the memory that unpacking them takes. O(bytes). */
#include "onnx/wire.h"

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
