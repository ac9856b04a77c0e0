/* The identity of the compiled library: the build id that the linker wrote into the program or
 * shared library that contains weft, and weft's version. */
#include "trainer.h"

#include "base/hash.h"

#include <weft/version.h>

#include <link.h>
#include <string.h>

typedef struct search {
    uintptr_t inside; /* an address of the object that is sought */
    uint64_t hash;
} search;

/* Hashes the build id among the notes [at, end), if there is one. */
static void hash_notes(const char *at, const char *end, uint64_t *hash)
{
    while ((size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)(const void *)at;
        const size_t name = (note->n_namesz + 3) & ~3u, text = (note->n_descsz + 3) & ~3u;
        if ((size_t)(end - at) < sizeof *note + name + text) return;
        const char *owner = at + sizeof *note;
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(owner, "GNU", 4))
            *hash = hash_bytes(*hash, owner + name, note->n_descsz);
        at = owner + name + text;
    }
}

static int visit(struct dl_phdr_info *info, size_t size, void *data)
{
    search *s = data;
    bool found = false;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const uintptr_t begin = info->dlpi_addr + p->p_vaddr;
        found |= p->p_type == PT_LOAD && s->inside >= begin && s->inside < begin + p->p_memsz;
    }
    for (int i = 0; found && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const char *begin = (const char *)(info->dlpi_addr + p->p_vaddr);
        if (p->p_type == PT_NOTE) hash_notes(begin, begin + p->p_memsz, &s->hash);
    }
    return found;
}

uint64_t weft__build_id(void)
{
    search s = {(uintptr_t)&weft__build_id,
                hash_bytes(HASH_START, WEFT_VERSION, strlen(WEFT_VERSION))};
    dl_iterate_phdr(visit, &s);
    return s.hash;
}
