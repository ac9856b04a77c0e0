/* The groups of processes that train together. Ranks count, in this order, the parts of a layer
 * (fastest), the stages of the model, and its replicas, each of which computes some of the
 * batches. */
#ifndef WEFT_DISTRIBUTED_MESH_H
#define WEFT_DISTRIBUTED_MESH_H

#include <weft/parallel.h>

/* Groups of processes, as graphs number them (weft_ranks.group). */
typedef enum mesh_group {
    MESH_DATA,   /* the same part and stage: they share the batches */
    MESH_TENSOR, /* the same stage and replica: they share the layers */
    MESH_STAGES, /* the same part and replica: the stages */
    MESH_MODEL,  /* the same replica: together they have the model */
    MESH_WORLD,  /* all; for errors only, no graph uses it */
    MESH_GROUPS
} mesh_group;

typedef struct mesh {
    int32_t tensor, stages, replicas;       /* sizes; their product is that of the world */
    int32_t rank;                           /* in the world */
    weft_communicator *groups[MESH_GROUPS]; /* NULL for a group of one */
    bool owns;                              /* groups other than the world's */
} mesh;

/* False if the sizes do not divide the number of processes. The world may be NULL: one process. */
bool weft__mesh_init(mesh *m, weft_communicator *world, int tensor, int stages);
/* Makes the communicators of the other groups. Every process must call it. */
weft_status weft__mesh_open(mesh *m, weft_error *error);
void weft__mesh_close(mesh *m);
/* This process in a group. */
weft_ranks weft__mesh_ranks(const mesh *m, mesh_group group);
/* The rank in a group of a process of the world. */
int32_t weft__mesh_place(const mesh *m, mesh_group group, int32_t rank);
/* Whether the model is divided. */
bool weft__mesh_divides(const mesh *m);
/* Signals to the processes of all groups that this one cannot continue. */
void weft__mesh_fail(mesh *m, const weft_error *error);
/* What all communicators have done. */
weft_traffic weft__mesh_traffic(const mesh *m);

#endif
