// Memory in reserve, for libraries that cannot bear a failed allocation.
//
// The program has operators new and delete of its own (reserve.cc). While a Reserve is alive, what
// its thread allocates with new comes from it if the system has nothing left. The work then ends
// well and is thrown away, because used() reports the failure. Memory of a used reserve is
// never freed: objects that outlive the work, such as those that a library makes once, may lie in
// it.
#ifndef WEFT_TOOLS_RESERVE_H
#define WEFT_TOOLS_RESERVE_H

#include <cstddef>

class Reserve
{
  public:
    // Throws std::bad_alloc unless the system has that many bytes.
    explicit Reserve(size_t bytes);
    ~Reserve();
    Reserve(const Reserve &) = delete;
    Reserve &operator=(const Reserve &) = delete;
    bool used() const;
    struct block;

  private:
    block *memory, *outer;
};

#endif
