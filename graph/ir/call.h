/* Calls of a kernel: how much work they are, and running one node on the calling thread. */
#ifndef WEFT_GRAPH_CALL_H
#define WEFT_GRAPH_CALL_H

#include "ir/ir.h"

#include <stdatomic.h>

/* The first failing step of a run, in order of the schedule; see weft_call_fail. */
#define NO_FAULT UINT32_MAX
typedef struct fault {
    atomic_uint step;     /* index in the schedule; NO_FAULT: none failed */
    int64_t index, limit; /* limit -1: input `index` is not finite; -2: `error` */
    weft_error error;
} fault;
#define FAULT_NOT_FINITE (-1)
#define FAULT_ERROR      (-2)

/* Reports an error of a kernel; the run returns it with the node's name. */
void weft__call_fail_with(const weft_call *call, const weft_error *error);

/* Sets the number of the calling thread in a program's pool, 0 for any other thread, which is added
 * to OpenMP's number. Returns what it was. */
int weft__call_set_thread(int thread);

/* Bytes in front of each thread's workspace, for the tag; see weft_call_panel_tag. */
#define PANEL_TAG_BYTES 64

/* The number of tiles of the call's phase. */
static inline int64_t op_tiles(const weft_op *op, const weft_call *call)
{
    return op->tiles ? op->tiles(call)
                     : (weft_shape_numel(call->out[0].shape) + WEFT_TILE - 1) / WEFT_TILE;
}
/* The work of a call, all phases together. */
weft_cost weft__op_cost(const weft_op *op, const weft_call *call);

/* Runs all tiles of all phases on the calling thread. `call` is one of the node's calls, with data,
 * scratch and run state; its phase and tiles are ignored. */
void weft__call_run(const weft_op *op, weft_kernel kernel, const weft_call *call);
/* The same for a call without scratch and run state: allocates both, and frees them. WEFT_NO_MEMORY
 * if that fails; WEFT_BAD_INDEX if the kernel reports a fault. */
weft_status weft__call_run_alone(const weft_op *op, weft_kernel kernel, const weft_call *call);

#endif
