// Whatever an etcd answers: each reader takes it, or says that it is no answer, and what
// was read is as bounded as the text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/input.hpp"
#include "store/etcd_features.hpp"
#include "store/etcd_wire.hpp"

using namespace manyworlds;
using fuzzing::must;

#if MANYWORLDS_HAS_ETCD

namespace {

std::size_t size_of(const etcd_entry& e) { return e.key.size() + e.value.size(); }

std::size_t size_of(const etcd::range_answer& answer) {
  std::size_t size = answer.entries.size();
  for (const etcd_entry& e : answer.entries) size += size_of(e);
  return size;
}

template <class Read>
void try_reading(std::string_view text, Read read) {
  try {
    must(read(text) <= text.size());
  } catch (const etcd::bad_answer& bad) {
    must(bad.what()[0] != '\0');
  }
}

void read_all(std::string_view text) {
  try_reading(text, [](auto t) { return size_of(etcd::read_range(t)); });
  try_reading(text, [](auto t) { return size_of(etcd::read_delete(t)); });
  try_reading(text, [](auto t) {
    std::size_t size = 0;
    for (const auto& step : etcd::read_transaction(t).steps) size += 1 + size_of(step);
    return size;
  });
  try_reading(text, [](auto t) {
    const etcd::watch_answer answer = etcd::read_watch(t);
    std::size_t size = answer.reason.size();
    for (const etcd_change& c : answer.changes) size += 1 + size_of(c.entry);
    return size;
  });
  try_reading(text, [](auto t) {
    const etcd::lease_answer answer = etcd::read_lease(t);
    must(answer.id != 0 && answer.seconds >= 0);
    return std::size_t{0};
  });
  try_reading(text, [](auto t) {
    must(etcd::read_keep_alive(t).seconds >= 0);
    return std::size_t{0};
  });
  try_reading(text, [](auto t) {
    const std::string token = etcd::read_token(t);
    // It goes into a head of HTTP.
    must(!token.empty() && token.find_first_of("\r\n\0 ") == std::string::npos);
    return token.size();
  });
  must(etcd::read_error(text).message.size() <= text.size());
  must(etcd::read_version(text).value_or("").size() <= text.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_all(text);
  // Base64 gives back what went in, and refuses what it could not have made.
  must(etcd::from_base64(etcd::to_base64(text)) == text);
  if (const auto bytes = etcd::from_base64(text)) must(bytes->size() <= text.size());
  return 0;
}

#else

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t) { return 0; }

#endif
