#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "soak/records.hpp"

namespace manyworlds_tests::soak {

namespace {

mw::time_point this_moment() { return std::chrono::steady_clock::now(); }

std::string text(const mw::failure& f) {
  return fmt::format("{} {} {} {} {} {} {} {} {}", static_cast<int>(f.cause), f.rank,
                     f.world_instance, f.epoch, static_cast<int>(f.operation), f.peer.pid,
                     f.noticed_after.count(), f.world.empty() ? "-" : f.world.str(),
                     f.detail);
}

std::string text(const message_key& k) {
  return fmt::format("{} {} {} {} {} {}", k.world, k.epoch, k.id, k.source, k.target,
                     k.lane);
}

}  // namespace

record_writer::record_writer(const std::string& path)
    : file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {
  if (file_ < 0) {
    std::perror(path.c_str());
    std::exit(2);
  }
}

record_writer::~record_writer() { ::close(file_); }

template <class... Values>
void record_writer::write(mw::time_point when, char kind, const Values&... values) {
  fmt::memory_buffer line;
  fmt::format_to(std::back_inserter(line), "{} {}", when.time_since_epoch().count(),
                 kind);
  (fmt::format_to(std::back_inserter(line), " {}", values), ...);
  std::replace(line.begin(), line.end(), '\n', ' ');
  line.push_back('\n');
  const ssize_t written = ::write(file_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return;
  // A hole in the records would be taken for a fault of the library.
  std::perror("soak: cannot write its records");
  std::abort();
}

void record_writer::complain(std::string what) { write(this_moment(), 'c', what); }

void record_writer::formed(world_entry e) {
  std::string members;
  for (const std::size_t pid : e.members) members += fmt::format(" {}", pid);
  write(e.formed, 'w', e.instance, e.name, e.epoch, e.id, e.rank, e.members.size(),
        members.substr(1));
}

void record_writer::leaving(std::size_t, std::uint64_t instance, mw::time_point when) {
  write(when, 'l', instance);
}

void record_writer::broke(std::size_t, std::uint64_t instance, const mw::failure& f,
                          mw::time_point when) {
  write(when, 'b', instance, text(f));
}

std::size_t record_writer::started(op_entry op) {
  write(op.started, 'o', op.instance, static_cast<int>(op.kind), op.peer, op.lane,
        op.number, int{op.delivered}, int{op.may_be_given_up},
        int{op.may_disagree_in_size}, op.limit ? op.limit->count() : -1);
  return operations_++;
}

void record_writer::done(std::size_t op, mw::time_point when) { write(when, 'd', op); }

void record_writer::failed(std::size_t op, const mw::failure& f, mw::time_point when) {
  write(when, 'f', op, text(f));
}

void record_writer::unwound(std::size_t op, mw::time_point when) { write(when, 'u', op); }

void record_writer::sent(const message_key& key, std::size_t op) {
  write(this_moment(), 's', op, text(key));
}

void record_writer::received(const message_key& key, std::uint64_t number,
                             std::size_t bytes, mw::time_point when) {
  write(when, 'r', number, bytes, text(key));
}

void record_writer::failing(const std::string& world) {
  write(this_moment(), 'F', world);
}

void record_writer::ended() { write(this_moment(), 'e'); }

}  // namespace manyworlds_tests::soak
