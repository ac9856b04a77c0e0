/* What weft uses on this machine. Not installed. */
#ifndef WEFT_INSPECT_MACHINE_H
#define WEFT_INSPECT_MACHINE_H

#include <weft/graph.h>

#include <cjson/cJSON.h>

/* Adds it to an object: version, processor, threads, caches, instruction set, and the backends of
 * matrix products. Fails if the backend named by WEFT_GEMM is not available. */
weft_status weft__add_machine(cJSON *json, weft_error *error);

#endif
