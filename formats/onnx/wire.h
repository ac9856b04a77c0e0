/* Limits of a file of protobuf messages, checked before it is unpacked. */
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

#endif
