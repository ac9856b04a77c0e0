/* What an update on several processes calls: see autograd/processes.h. */
#include "shards.h"

static const char *param_of(const weft_shards *s, const char *name)
{
    const shard_param *p = weft__shards_find(s, name);
    return p ? p->name : NULL;
}

static int64_t first_of(const weft_shards *s, const char *param)
{
    int64_t first = 0, end;
    weft__shards_piece(s, param, s->ranks.rank, &first, &end);
    return first;
}

static const bool *counted_of(const weft_model_split *model)
{
    return model->counted;
}

const update_processes weft__shards_update = {
    .match = weft__shards_match,
    .param = param_of,
    .first = first_of,
    .key = weft__shards_key,
    .slice = weft__shards_slice,
    .gather = weft__shards_gather,
    .norm = weft__shards_norm,
    .counted = counted_of,
};

weft_model_split weft__model_split_of(weft_ranks ranks, const bool *counted)
{
    return (weft_model_split){&weft__shards_update, ranks, counted};
}
