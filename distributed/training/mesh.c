/* The groups of processes: see mesh.h. */
#include "mesh.h"

static int32_t size_of(const mesh *m, mesh_group group)
{
    switch (group) {
    case MESH_DATA:
        return m->replicas;
    case MESH_TENSOR:
        return m->tensor;
    case MESH_STAGES:
        return m->stages;
    case MESH_MODEL:
        return m->tensor * m->stages;
    default:
        return m->tensor * m->stages * m->replicas;
    }
}

int32_t weft__mesh_place(const mesh *m, mesh_group group, int32_t rank)
{
    const int32_t model = m->tensor * m->stages;
    switch (group) {
    case MESH_DATA:
        return rank / model;
    case MESH_TENSOR:
        return rank % m->tensor;
    case MESH_STAGES:
        return rank / m->tensor % m->stages;
    case MESH_MODEL:
        return rank % model;
    default:
        return rank;
    }
}

weft_ranks weft__mesh_ranks(const mesh *m, mesh_group group)
{
    return (weft_ranks){(int32_t)group, weft__mesh_place(m, group, m->rank), size_of(m, group)};
}

bool weft__mesh_divides(const mesh *m)
{
    return m->tensor * m->stages > 1;
}

bool weft__mesh_init(mesh *m, weft_communicator *world, int tensor, int stages)
{
    const int size = world ? world->size : 1;
    *m = (mesh){.tensor = tensor, .stages = stages, .rank = world ? world->rank : 0};
    if (size > 1) m->groups[MESH_WORLD] = world;
    if (tensor < 1 || stages < 1 || tensor > size || stages > size / tensor ||
        size % (tensor * stages))
        return false;
    m->replicas = size / (tensor * stages);
    return true;
}

/* Processes with the same number are in the same group: it combines the coordinates in which a
 * group's members agree. */
static int32_t part_of(const mesh *m, mesh_group group)
{
    const int32_t t = weft__mesh_place(m, MESH_TENSOR, m->rank),
                  p = weft__mesh_place(m, MESH_STAGES, m->rank);
    const int32_t d = weft__mesh_place(m, MESH_DATA, m->rank);
    switch (group) {
    case MESH_DATA:
        return p * m->tensor + t;
    case MESH_TENSOR:
        return d * m->stages + p;
    case MESH_STAGES:
        return d * m->tensor + t;
    default:
        return d;
    }
}

weft_status weft__mesh_open(mesh *m, weft_error *error)
{
    weft_communicator *world = m->groups[MESH_WORLD];
    if (!world) return WEFT_OK;
    if (!weft__mesh_divides(m)) {
        m->groups[MESH_DATA] = world;
        return WEFT_OK;
    }
    m->owns = true;
    weft_status status = WEFT_OK;
    for (int g = 0; status == WEFT_OK && g < MESH_WORLD; g++) {
        if (size_of(m, (mesh_group)g) == 1) continue;
        status = world->split(world->context, part_of(m, (mesh_group)g), &m->groups[g], error);
        if (status == WEFT_OK) m->groups[g]->seconds = world->seconds;
    }
    if (status != WEFT_OK) weft__mesh_fail(m, error);
    return status;
}

void weft__mesh_close(mesh *m)
{
    for (int g = 0; m->owns && g < MESH_WORLD; g++) weft_communicator_free(m->groups[g]);
    m->owns = false;
}

void weft__mesh_fail(mesh *m, const weft_error *error)
{
    for (int g = m->owns ? 0 : MESH_WORLD; g < MESH_GROUPS; g++)
        if (m->groups[g]) m->groups[g]->fail(m->groups[g]->context, error);
}

weft_traffic weft__mesh_traffic(const mesh *m)
{
    weft_traffic sum = {0};
    for (int g = m->owns ? 0 : MESH_WORLD; g < MESH_GROUPS; g++) {
        if (!m->groups[g]) continue;
        const weft_traffic *one = &m->groups[g]->traffic;
        sum.exchanges += one->exchanges;
        sum.sent_bytes += one->sent_bytes;
        sum.in_flight += one->in_flight;
        sum.waited += one->waited;
    }
    return sum;
}
