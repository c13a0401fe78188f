#include "mpmd/context_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace manyworlds::inline v0::detail {

namespace {

enum class row_kind : std::uint8_t { changes, snapshot };
enum class change_kind : std::uint8_t { set, erased };

// What a row takes in a file beside its body, about.
constexpr std::size_t row_overhead = 32;

void put_text(wire_writer& out, std::string_view text) {
  out.put(static_cast<std::uint32_t>(text.size()));
  out.put_raw(std::as_bytes(std::span(text)));
}

std::string get_text(wire_reader& in) {
  const auto raw = in.take(in.get<std::uint32_t>());
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

void put_set(wire_writer& out, std::string_view key, std::string_view value) {
  out.put(change_kind::set);
  put_text(out, key);
  put_text(out, value);
}

bytes body_of(const std::vector<context_write>& changes) {
  wire_writer out;
  out.put(row_kind::changes);
  out.put(static_cast<std::uint32_t>(changes.size()));
  for (const context_write& change : changes) {
    if (change.value) {
      put_set(out, change.key, *change.value);
    } else {
      out.put(change_kind::erased);
      put_text(out, change.key);
    }
  }
  return out.take();
}

bytes body_of(const context_values& values) {
  wire_writer out;
  out.put(row_kind::snapshot);
  out.put(static_cast<std::uint32_t>(values.size()));
  for (const auto& [key, value] : values) put_set(out, key, value);
  return out.take();
}

struct row_content {
  row_kind kind;
  std::vector<context_write> changes;
};

/// Errors: wire_error.
row_content content_of(const bytes& body) {
  wire_reader in(body);
  row_content content{in.get_enum(row_kind::snapshot), {}};
  const auto count = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count; ++i) {
    const change_kind kind = in.get_enum(change_kind::erased);
    context_write change{get_text(in), std::nullopt};
    if (kind == change_kind::set) change.value = get_text(in);
    content.changes.push_back(std::move(change));
  }
  in.expect_end();
  return content;
}

std::uint64_t checksum_of(const context_row& row, std::uint64_t before) noexcept {
  return context_checksum(before)
      .number(row.sequence)
      .number(row.term)
      .text(row.body)
      .value();
}

}  // namespace

context_checksum& context_checksum::text(std::string_view bytes) noexcept {
  number(bytes.size());
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t size = std::min(bytes.size(), sizeof word);
    std::memcpy(&word, bytes.data(), size);
    number(word);
    bytes.remove_prefix(size);
  }
  return *this;
}

void context_log::play(const context_row& row) {
  const bool is_first = sequence_ == 0;
  if (!is_first && row.sequence != sequence_ + 1)
    throw context_damage(fmt::format("row {} is behind row {}", row.sequence, sequence_));
  if (row.checksum != checksum_of(row, last_))
    throw context_damage(fmt::format(
        "row {} is not what was written: its checksum is wrong", row.sequence));
  if (row.term < term_)
    throw context_damage(
        fmt::format("row {} has term {}, behind term {}", row.sequence, row.term, term_));
  row_content content{};
  try {
    content = content_of(row.body);
  } catch (const wire_error& e) {
    throw context_damage(
        fmt::format("row {} cannot be read: {}", row.sequence, e.what()));
  }
  const bool is_snapshot = content.kind == row_kind::snapshot;
  if (is_first && !is_snapshot && row.sequence != 1)
    throw context_damage(fmt::format("the rows before row {} are missing", row.sequence));
  if (!is_first && is_snapshot)
    throw context_damage(
        fmt::format("rows before the snapshot in row {} are still there", row.sequence));
  apply(content.changes);
  count(row, is_snapshot);
}

void context_log::expect_end(const context_head& head) const {
  if (sequence_ != head.sequence)
    throw context_damage(fmt::format("the rows end with {}: row {} was written",
                                     sequence_, head.sequence));
  if (last_ != head.last)
    throw context_damage(
        fmt::format("row {} is not the one that was written last", sequence_));
  if (term_ > head.term)
    throw context_damage(fmt::format("row {} has term {}, of which the head has only {}",
                                     sequence_, term_, head.term));
}

context_row context_log::append(std::uint64_t term,
                                const std::vector<context_write>& changes) {
  context_row row = next(term, body_of(changes), false);
  apply(changes);
  return row;
}

context_row context_log::begin_anew(std::uint64_t term,
                                    const std::vector<context_write>& changes) {
  apply(changes);
  return next(term, body_of(values_), true);
}

context_row context_log::next(std::uint64_t term, bytes body, bool is_snapshot) {
  context_row row{sequence_ + 1, term, std::move(body), 0};
  row.checksum = checksum_of(row, is_snapshot ? context_chain_start : last_);
  count(row, is_snapshot);
  return row;
}

void context_log::apply(const std::vector<context_write>& changes) {
  for (const context_write& change : changes) {
    if (change.value) {
      values_.insert_or_assign(change.key, *change.value);
    } else {
      values_.erase(change.key);
    }
  }
}

void context_log::count(const context_row& row, bool is_snapshot) noexcept {
  sequence_ = row.sequence;
  term_ = row.term;
  last_ = row.checksum;
  const std::size_t size = row.body.size() + row_overhead;
  if (is_snapshot) snapshot_bytes_ = size;
  change_bytes_ = is_snapshot ? 0 : change_bytes_ + size;
}

}  // namespace manyworlds::inline v0::detail
