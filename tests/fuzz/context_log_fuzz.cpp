// The context of a job as a store has kept it: of rows that were written, changed and
// torn in any way, none is taken that is not what was written, and those that are taken
// make the values that were there. Of rows that bear the right checksum all else may be
// wrong.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "input.hpp"
#include "mpmd/context_log.hpp"

using namespace manyworlds;
using detail::context_log;
using detail::context_row;
using fuzzing::input;
using fuzzing::must;

namespace {

std::string some_text(input& in, std::size_t most) {
  std::string text(in.take<std::uint8_t>() % (most + 1), 'x');
  in.take_into(std::as_writable_bytes(std::span(text)));
  return text;
}

std::vector<detail::context_write> some_changes(input& in) {
  std::vector<detail::context_write> all(in.take<std::uint8_t>() % 4);
  for (detail::context_write& change : all) {
    change.key = some_text(in, 3);
    if (in.take<std::uint8_t>() % 4 != 0) change.value = some_text(in, 40);
  }
  return all;
}

/// Rows as they were written, with what they made then.
struct written_log {
  std::vector<context_row> rows;
  std::vector<detail::context_values> values;
  std::uint64_t term = 1;
};

written_log write_rows(input& in) {
  written_log all;
  context_log log;
  for (int n = in.take<std::uint8_t>() % 8; n >= 0; --n) {
    const std::uint8_t how = in.take<std::uint8_t>();
    if (how % 4 == 1) ++all.term;
    const bool begins = how % 8 == 7 && !all.rows.empty();
    if (begins) {
      all.rows.clear();
      all.values.clear();
    }
    const auto changes = some_changes(in);
    all.rows.push_back(begins ? log.begin_anew(all.term, changes)
                              : log.append(all.term, changes));
    all.values.push_back(log.values());
  }
  return all;
}

/// Returns whether it is another log.
bool damage(input& in, std::vector<context_row>& rows) {
  const std::vector<context_row> before = rows;
  for (int n = in.take<std::uint8_t>() % 3; n > 0; --n) {
    if (rows.empty()) break;
    context_row& row = rows[in.take<std::uint8_t>() % rows.size()];
    const std::uint64_t by = in.take<std::uint64_t>();
    switch (in.take<std::uint8_t>() % 6) {
      case 0:
        row.sequence ^= by;
        break;
      case 1:
        row.term ^= by;
        break;
      case 2:
        row.checksum ^= by;
        break;
      case 3:
        if (!row.body.empty()) row.body[by % row.body.size()] ^= std::byte{1};
        break;
      case 4:
        row.body.resize(by % (row.body.size() + 9));
        break;
      default:
        rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(by % rows.size()));
    }
  }
  const auto is_same = [](const context_row& a, const context_row& b) {
    return a.sequence == b.sequence && a.term == b.term && a.body == b.body &&
           a.checksum == b.checksum;
  };
  return !std::equal(rows.begin(), rows.end(), before.begin(), before.end(), is_same);
}

/// Returns the log that these rows make, or nothing if one is refused.
std::optional<context_log> played(const std::vector<context_row>& rows) {
  context_log log;
  try {
    for (const context_row& row : rows) log.play(row);
  } catch (const detail::context_damage&) {
    return std::nullopt;
  }
  return log;
}

void check_damage(input& in) {
  written_log all = write_rows(in);
  const detail::context_head head{all.term, all.rows.back().sequence,
                                  all.rows.back().checksum};
  const auto whole = played(all.rows);
  must(whole.has_value());
  whole->expect_end(head);
  must(whole->values() == all.values.back());
  std::vector<context_row> rows = all.rows;
  const bool is_damaged = damage(in, rows);
  const auto read = played(rows);
  must(is_damaged || read.has_value());
  if (!read) return;
  bool is_at_end = true;
  try {
    read->expect_end(head);
  } catch (const detail::context_damage&) {
    is_at_end = false;
  }
  // What ends at the head is what was written: nothing else has its checksum.
  if (is_at_end) must(read->values() == all.values.back());
}

/// By a writer that knows how checksums are made.
void check_forged_row(input& in) {
  context_row row;
  row.sequence = in.take<std::uint8_t>() % 3;
  row.term = in.take<std::uint8_t>();
  row.body.resize(in.take<std::uint8_t>());
  in.take_into(row.body);
  row.checksum = detail::context_checksum(detail::context_chain_start)
                     .number(row.sequence)
                     .number(row.term)
                     .text(row.body)
                     .value();
  const auto log = played({row});
  if (!log) return;
  std::size_t bytes = 0;
  for (const auto& [key, value] : log->values()) bytes += key.size() + value.size();
  must(bytes <= row.body.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input in(data, size);
  if (in.take<std::uint8_t>() % 4 == 0) {
    check_forged_row(in);
  } else {
    check_damage(in);
  }
  return 0;
}
