// Memory in reserve: see reserve.h.
#include "reserve.h"

#include "base/platform.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

struct Reserve::block {
    block *next; // of the used ones
    size_t bytes, taken;
    char *memory() { return reinterpret_cast<char *>(this + 1); }
};

namespace
{
thread_local Reserve::block *active;
std::atomic<Reserve::block *> used_blocks;

constexpr size_t alignment = 64; // the largest that is asked for

size_t rounded(size_t bytes)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

void *take(Reserve::block *b, size_t bytes)
{
    const uintptr_t begin = (uintptr_t)b->memory();
    const size_t at = rounded(begin + b->taken) - begin;
    if (at > b->bytes || bytes > b->bytes - at) return nullptr;
    if (!b->taken) {
        b->next = used_blocks.load();
        while (!used_blocks.compare_exchange_weak(b->next, b)) {
        }
    }
    b->taken = at + (bytes ? bytes : 1);
    return b->memory() + at;
}

bool in_reserve(const void *p)
{
    for (Reserve::block *b = used_blocks.load(); b; b = b->next)
        if ((uintptr_t)p - (uintptr_t)b->memory() < b->bytes) return true;
    return false;
}

void *allocate(size_t bytes, size_t align)
{
    if (bytes > SIZE_MAX - 2 * alignment) return nullptr;
    void *p = align > alignof(std::max_align_t)
                  ? weft__os_memory(align, (bytes + align - 1) / align * align)
                  : std::malloc(bytes ? bytes : 1);
    return p || !active ? p : take(active, bytes);
}

[[maybe_unused]] void *allocate_or_throw(size_t bytes, size_t align)
{
    void *p = allocate(bytes, align);
    if (!p) throw std::bad_alloc();
    return p;
}

[[maybe_unused]] void release(void *p, size_t align) noexcept
{
    if (!p || in_reserve(p)) return;
    if (align > alignof(std::max_align_t))
        weft__os_memory_free(p);
    else
        std::free(p);
}
} // namespace

Reserve::Reserve(size_t bytes)
    : memory(static_cast<block *>(std::malloc(sizeof(block) + bytes))), outer(active)
{
    if (!memory) throw std::bad_alloc();
    *memory = {nullptr, bytes, 0};
    active = memory;
}

Reserve::~Reserve()
{
    active = outer;
    if (!memory->taken) std::free(memory);
}

bool Reserve::used() const
{
    return memory->taken > 0;
}

// The libraries of the program use these instead of those of libstdc++. ThreadSanitizer has its
// own, which cannot be replaced: with it, reserves are never used.
#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define OTHER_OPERATORS
#endif
#endif
#if !defined(OTHER_OPERATORS) && !defined(__SANITIZE_THREAD__)
#pragma GCC visibility push(default)

void *operator new(size_t bytes)
{
    return allocate_or_throw(bytes, 1);
}
void *operator new[](size_t bytes)
{
    return allocate_or_throw(bytes, 1);
}
void *operator new(size_t bytes, std::align_val_t align)
{
    return allocate_or_throw(bytes, (size_t)align);
}
void *operator new[](size_t bytes, std::align_val_t align)
{
    return allocate_or_throw(bytes, (size_t)align);
}
void *operator new(size_t bytes, const std::nothrow_t &) noexcept
{
    return allocate(bytes, 1);
}
void *operator new[](size_t bytes, const std::nothrow_t &) noexcept
{
    return allocate(bytes, 1);
}
void operator delete(void *p) noexcept
{
    release(p, 1);
}
void operator delete[](void *p) noexcept
{
    release(p, 1);
}
void operator delete(void *p, size_t) noexcept
{
    release(p, 1);
}
void operator delete[](void *p, size_t) noexcept
{
    release(p, 1);
}
void operator delete(void *p, std::align_val_t align) noexcept
{
    release(p, (size_t)align);
}
void operator delete[](void *p, std::align_val_t align) noexcept
{
    release(p, (size_t)align);
}
void operator delete(void *p, size_t, std::align_val_t align) noexcept
{
    release(p, (size_t)align);
}
void operator delete[](void *p, size_t, std::align_val_t align) noexcept
{
    release(p, (size_t)align);
}
void operator delete(void *p, const std::nothrow_t &) noexcept
{
    release(p, 1);
}
void operator delete[](void *p, const std::nothrow_t &) noexcept
{
    release(p, 1);
}

#pragma GCC visibility pop
#endif
