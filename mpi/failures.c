/* Failures: of MPI, and of other ranks, which send a message. */
#include "member.h"

#include "base/exchange.h"

weft_status weft__mpi_check(int code, const char *call, weft_error *error)
{
    if (code == MPI_SUCCESS) return WEFT_OK;
    char text[MPI_MAX_ERROR_STRING + 1] = "unknown error";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return weft_error_set(error, WEFT_PEER, "MPI", "%s: %s", call, text);
}

bool weft__failure_receive(family *f, weft_error *other, int *from)
{
    int found = 0, bytes = 0;
    MPI_Status s;
    const int code = MPI_Iprobe(MPI_ANY_SOURCE, FAILED, f->control, &found, &s);
    if (weft__mpi_check(code, "MPI_Iprobe", &f->failure) != WEFT_OK || !found) return false;
    /* It is there, so this does not wait. */
    if (weft__mpi_check(
            MPI_Recv(other, sizeof *other, MPI_BYTE, s.MPI_SOURCE, FAILED, f->control, &s),
            "MPI_Recv", &f->failure) != WEFT_OK)
        return false;
    MPI_Get_count(&s, MPI_BYTE, &bytes);
    if (bytes != (int)sizeof *other)
        weft_error_set(other, WEFT_PEER, "MPI", "%d bytes instead of an error", bytes);
    other->where[sizeof other->where - 1] = other->message[sizeof other->message - 1] = 0;
    *from = s.MPI_SOURCE;
    return true;
}

void weft__family_look(family *f)
{
    weft_error other = {0};
    int from;
    if (f->failure.status == WEFT_OK && weft__failure_receive(f, &other, &from))
        exchange_peer_failed(&f->failure, from, &other);
}
