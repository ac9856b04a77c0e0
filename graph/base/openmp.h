/* base/openmp.h - OpenMP; or, where weft is built without it, what it says where no parallel region
 * ever has a second thread (the stubs of its specification). Not installed. */
#ifndef WEFT_BASE_OPENMP_H
#define WEFT_BASE_OPENMP_H

#ifdef _OPENMP
#include <omp.h>
#define OPENMP_FOUND true
#else
#define OPENMP_FOUND false

#define OPENMP_STUB(name, value)                                                                   \
    static inline int omp_get_##name(void)                                                         \
    {                                                                                              \
        return value;                                                                              \
    }
OPENMP_STUB(thread_num, 0)
OPENMP_STUB(num_threads, 1)
OPENMP_STUB(max_threads, 1)
OPENMP_STUB(thread_limit, 1)
OPENMP_STUB(num_procs, 1)
OPENMP_STUB(level, 0)
OPENMP_STUB(active_level, 0)
OPENMP_STUB(max_active_levels, 1)
#undef OPENMP_STUB

static inline void omp_set_num_threads(int threads)
{
    (void)threads;
}
#endif

#endif
