/* Files of protobuf messages: limits, which are checked first, and unpacking. */
#ifndef WEFT_ONNX_WIRE_H
#define WEFT_ONNX_WIRE_H

#include <weft/graph.h>

#include <protobuf-c/protobuf-c.h>

/* The maximum depth of nested messages, and the maximum memory for the unpacked messages: a
 * multiple of the file's size plus a constant. */
#define WIRE_MAX_DEPTH    64
#define WIRE_MEMORY_RATIO 64
#define WIRE_SPARE_BYTES  ((uint64_t)1 << 20)

/* WEFT_BAD_FILE if the bytes are not a message of that type, WEFT_TOO_LARGE if it exceeds a limit.
 */
weft_status weft__wire_check(const ProtobufCMessageDescriptor *message, const void *data,
                             size_t bytes);

/* Data of at least WIRE_LARGE bytes are unpacked to addresses that a parameter store takes. */
#define WIRE_LARGE     ((size_t)4096)
#define WIRE_ALIGNMENT ((size_t)64)
/* Unpacks a message that was checked; NULL if it is malformed or, which *no_memory says, out of
 * memory. `mapped` is the data if they are a mapped file, else NULL. */
ProtobufCMessage *weft__wire_unpack(const ProtobufCMessageDescriptor *message, const void *data,
                                    size_t bytes, void *mapped, bool *no_memory);
void weft__wire_free(ProtobufCMessage *message);

#endif
