#include "collective.hpp"

#include "element.hpp"
#include "exchange.hpp"

#include <algorithm>
#include <cstring>

namespace nccl_emulation {

namespace {

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

char* bytes_at(void* base, std::size_t offset) {
  return static_cast<char*>(base) + offset;
}

const char* bytes_at(const void* base, std::size_t offset) {
  return static_cast<const char*>(base) + offset;
}

void copy(void* to, const void* from, std::size_t size) {
  if (to != from && size > 0) std::memmove(to, from, size);
}

bool scaled(const reduction& r) { return r.kind >= ncclNumOps; }

const void* scalar_of(const reduction& r) {
  return r.scalar_at != nullptr ? r.scalar_at : r.scalar.data();
}

/// The messages of one collective, in phases that both ends number alike.
class phases {
 public:
  phases(communicator& c, const task& t) : c_(c), t_(t) {}

  void begin() {
    ++phase_;
    sends_.clear();
    receives_.clear();
  }
  void send(int peer, const void* data, std::size_t size) {
    sends_.push_back({peer, data, about(size)});
  }
  void receive(int peer, void* data, std::size_t size) {
    receives_.push_back({peer, data, about(size), false});
  }
  bool run() { return exchange(c_, sends_, receives_); }

 private:
  signature about(std::size_t size) const {
    signature s;
    s.call = static_cast<int>(t_.what);
    s.phase = phase_;
    s.type = t_.type;
    s.op = std::min<int>(t_.op.kind, ncclNumOps);
    s.root = t_.root;
    s.bytes = size;
    return s;
  }

  communicator& c_;
  const task& t_;
  int phase_ = 0;
  std::vector<outgoing> sends_;
  std::vector<incoming> receives_;
};

/// What this rank puts in: its buffer, or a scaled copy of it.
class contribution {
 public:
  contribution(const task& t, std::size_t count) : data_(t.from) {
    if (!scaled(t.op)) return;
    own_.resize(count * size_of(t.type));
    std::memcpy(own_.data(), t.from, own_.size());
    scale(own_.data(), count, t.type, scalar_of(t.op));
    data_ = own_.data();
  }
  const void* data() const { return data_; }

 private:
  std::vector<char> own_;
  const void* data_;
};

/// Takes `size` bytes at `offset` of each rank's contribution and reduces them in rank
/// order, so that all ranks see the same bits.
class reducer {
 public:
  reducer(communicator& c, const task& t, std::size_t count)
      : c_(c),
        t_(t),
        count_(count),
        size_(count * size_of(t.type)),
        parts_(size_ * index(c.count)) {}

  void expect(phases& messages, const void* own) {
    copy(part(c_.rank), own, size_);
    for (int r = 0; r < c_.count; ++r)
      if (r != c_.rank) messages.receive(r, part(r), size_);
  }
  void reduce_into(void* to) {
    const auto op = t_.op.kind == ncclAvg || scaled(t_.op) ? ncclSum : t_.op.kind;
    for (int r = 1; r < c_.count; ++r) combine(part(0), part(r), count_, t_.type, op);
    if (t_.op.kind == ncclAvg) divide(part(0), count_, t_.type, c_.count);
    copy(to, part(0), size_);
  }

 private:
  void* part(int rank) { return parts_.data() + size_ * index(rank); }

  communicator& c_;
  const task& t_;
  std::size_t count_;
  std::size_t size_;
  std::vector<char> parts_;
};

// Rank r owns the r-th part of the elements.
struct share {
  share(const communicator& c, const task& t, int rank)
      : first(t.count * index(rank) / index(c.count)),
        count(t.count * (index(rank) + 1) / index(c.count) - first),
        offset(first * size_of(t.type)),
        size(count * size_of(t.type)) {}

  std::size_t first;
  std::size_t count;
  std::size_t offset;
  std::size_t size;
};

bool all_reduce(communicator& c, const task& t) {
  const contribution own{t, t.count};
  const share mine{c, t, c.rank};
  reducer sum{c, t, mine.count};
  phases messages{c, t};
  messages.begin();
  sum.expect(messages, bytes_at(own.data(), mine.offset));
  for (int r = 0; r < c.count; ++r) {
    const share theirs{c, t, r};
    if (r != c.rank) messages.send(r, bytes_at(own.data(), theirs.offset), theirs.size);
  }
  if (!messages.run()) return false;
  sum.reduce_into(bytes_at(t.to, mine.offset));
  messages.begin();
  for (int r = 0; r < c.count; ++r) {
    const share theirs{c, t, r};
    if (r == c.rank) continue;
    messages.send(r, bytes_at(t.to, mine.offset), mine.size);
    messages.receive(r, bytes_at(t.to, theirs.offset), theirs.size);
  }
  return messages.run();
}

bool reduce_scatter(communicator& c, const task& t) {
  const contribution own{t, t.count * index(c.count)};
  reducer sum{c, t, t.count};
  phases messages{c, t};
  messages.begin();
  sum.expect(messages, bytes_at(own.data(), t.bytes() * index(c.rank)));
  for (int r = 0; r < c.count; ++r)
    if (r != c.rank)
      messages.send(r, bytes_at(own.data(), t.bytes() * index(r)), t.bytes());
  if (!messages.run()) return false;
  sum.reduce_into(t.to);
  return true;
}

bool reduce(communicator& c, const task& t) {
  const contribution own{t, t.count};
  phases messages{c, t};
  messages.begin();
  if (c.rank != t.root) {
    messages.send(t.root, own.data(), t.bytes());
    return messages.run();
  }
  reducer sum{c, t, t.count};
  sum.expect(messages, own.data());
  if (!messages.run()) return false;
  sum.reduce_into(t.to);
  return true;
}

bool broadcast(communicator& c, const task& t) {
  phases messages{c, t};
  messages.begin();
  if (c.rank == t.root) {
    copy(t.to, t.from, t.bytes());
    for (int r = 0; r < c.count; ++r)
      if (r != c.rank) messages.send(r, t.from, t.bytes());
  } else {
    messages.receive(t.root, t.to, t.bytes());
  }
  return messages.run();
}

bool all_gather(communicator& c, const task& t) {
  phases messages{c, t};
  messages.begin();
  void* own = bytes_at(t.to, t.bytes() * index(c.rank));
  copy(own, t.from, t.bytes());
  for (int r = 0; r < c.count; ++r) {
    if (r == c.rank) continue;
    messages.send(r, own, t.bytes());
    messages.receive(r, bytes_at(t.to, t.bytes() * index(r)), t.bytes());
  }
  return messages.run();
}

}  // namespace

bool run_collective(communicator& c, const task& t) {
  switch (t.what) {
    case call::all_reduce:
      return all_reduce(c, t);
    case call::reduce_scatter:
      return reduce_scatter(c, t);
    case call::reduce:
      return reduce(c, t);
    case call::broadcast:
      return broadcast(c, t);
    default:
      return all_gather(c, t);
  }
}

bool run_point_to_point(communicator& c, std::span<const task> tasks,
                        std::vector<bool>& complete) {
  std::vector<outgoing> sends;
  std::vector<incoming> receives;
  std::vector<std::size_t> place;
  std::vector<const task*> to_self;
  complete.assign(tasks.size(), false);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const auto& t = tasks[i];
    // Types need not agree, sizes must.
    signature about;
    about.bytes = t.bytes();
    if (t.root == c.rank) {
      if (t.what == call::send) to_self.push_back(&t);
      complete[i] = true;
    } else if (t.what == call::send) {
      sends.push_back({t.root, t.from, about});
    } else {
      receives.push_back({t.root, t.to, about, false});
      place.push_back(i);
    }
  }
  auto next = to_self.begin();
  for (const auto& t : tasks) {
    if (t.what != call::receive || t.root != c.rank || next == to_self.end()) continue;
    copy(t.to, (*next)->from, std::min(t.bytes(), (*next)->bytes()));
    ++next;
  }
  const bool all = exchange(c, sends, receives);
  for (std::size_t i = 0; i < place.size(); ++i)
    complete[place[i]] = receives[i].complete;
  return all;
}

void reduce_alone(const task& t) {
  copy(t.to, t.from, t.bytes());
  if (scaled(t.op)) scale(t.to, t.count, t.type, scalar_of(t.op));
}

}  // namespace nccl_emulation
