#include "launch/worker_testimony.hpp"

#include <algorithm>
#include <string_view>

namespace manyworlds::inline v0::detail {

namespace {

constexpr std::size_t longest_witness_name = 255;
constexpr std::size_t longest_verdict = 1024;
constexpr std::uint32_t most_members = 1024;
constexpr std::uint32_t most_entries = 4096;

void put_member(wire_writer& out, const far_member& m) {
  out.put(std::string_view(m.world).substr(0, longest_witness_name)).put(m.pid);
  out.put(std::string_view(m.host).substr(0, longest_witness_name));
}

far_member get_member(wire_reader& in) {
  far_member m;
  m.world = in.get_text(longest_witness_name);
  m.pid = in.get<std::int64_t>();
  m.host = in.get_text(longest_witness_name);
  return m;
}

std::uint32_t get_count(wire_reader& in, std::uint32_t most) {
  const auto count = in.get<std::uint32_t>();
  if (count > most) throw wire_error("more entries than any node tells");
  return count;
}

template <class T>
std::uint32_t count_of(const std::vector<T>& all) {
  return static_cast<std::uint32_t>(std::min<std::size_t>(all.size(), most_members));
}

bytes encoded_entry(const worker_testimony& t) {
  wire_writer out;
  out.put(t.rank).put(std::uint8_t{t.waits.has_value()});
  if (t.waits) {
    out.put(std::string_view(t.waits->operation).substr(0, longest_witness_name));
    put_member(out, t.waits->on);
  }
  const std::uint32_t count = count_of(t.suspects);
  out.put(count);
  for (std::uint32_t i = 0; i < count; ++i) put_member(out, t.suspects[i]);
  return out.take();
}

bytes encoded_entry(const told_verdict& v) {
  wire_writer out;
  out.put(std::string_view(v.host).substr(0, longest_witness_name));
  out.put(std::string_view(v.text).substr(0, longest_verdict));
  const std::uint32_t count = count_of(v.accusers);
  out.put(count);
  for (std::uint32_t i = 0; i < count; ++i) out.put(v.accusers[i]);
  return out.take();
}

template <class T>
void put_all(wire_writer& out, const std::vector<T>& all, std::size_t most) {
  wire_writer entries;
  std::uint32_t count = 0;
  for (const T& each : all) {
    const bytes entry = encoded_entry(each);
    if (count == most_entries || entries.view().size() + entry.size() > most) break;
    entries.put_raw(entry);
    ++count;
  }
  out.put(count).put_raw(entries.view());
}

}  // namespace

void put_testimonies(wire_writer& out, const std::vector<worker_testimony>& all,
                     std::size_t most) {
  put_all(out, all, most);
}

void put_verdicts(wire_writer& out, const std::vector<told_verdict>& all,
                  std::size_t most) {
  put_all(out, all, most);
}

std::vector<worker_testimony> get_testimonies(wire_reader& in) {
  std::vector<worker_testimony> all;
  for (std::uint32_t left = get_count(in, most_entries); left > 0; --left) {
    worker_testimony& t = all.emplace_back();
    t.rank = in.get<std::int32_t>();
    if (in.get<std::uint8_t>() != 0) {
      t.waits.emplace().operation = in.get_text(longest_witness_name);
      t.waits->on = get_member(in);
    }
    for (std::uint32_t more = get_count(in, most_members); more > 0; --more)
      t.suspects.push_back(get_member(in));
  }
  return all;
}

std::vector<told_verdict> get_verdicts(wire_reader& in) {
  std::vector<told_verdict> all;
  for (std::uint32_t left = get_count(in, most_entries); left > 0; --left) {
    told_verdict& v = all.emplace_back();
    v.host = in.get_text(longest_witness_name);
    v.text = in.get_text(longest_verdict);
    for (std::uint32_t more = get_count(in, most_members); more > 0; --more)
      v.accusers.push_back(in.get<std::int32_t>());
  }
  return all;
}

}  // namespace manyworlds::inline v0::detail
