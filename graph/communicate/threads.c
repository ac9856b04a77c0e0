/* A communicator of threads: see weft/communicator.h. */
#include <weft/communicator.h>

weft_status weft_communicator_threads(int size, double seconds, weft_communicator **all,
                                      weft_error *error)
{
    (void)size;
    (void)seconds;
    (void)all;
    return weft_error_set(error, WEFT_INTERNAL, "communicator", "not yet");
}
