#include "manyworlds/weights/weight_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "exception_text.hpp"
#include "manyworlds/coro/scope.hpp"
#include "manyworlds/coro/when_all.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "manyworlds/io/file_reader.hpp"
#include "manyworlds/nccl/copy.hpp"
#include "manyworlds/world/world.hpp"
#include "weights/read_plan.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

/// How many requests of one load are under way at once.
constexpr std::size_t most_requests = 8;

/// The longest text by which a reader says why it failed.
constexpr std::size_t longest_trouble = 4096;

constexpr std::string_view index_ending = ".safetensors.index.json";

[[noreturn]] void refuse_loading(std::string_view what, const std::string& why) {
  throw weights_error(fmt::format("{}: {}", what, why));
}

/// Reads the requests that are left, one after the other.
task<void> read_requests(const file_reader& file, read_plan& plan,
                         std::span<std::byte> into) {
  std::vector<std::byte> together;
  for (;;) {
    const std::optional<planned_read> next = plan.next();
    if (!next) co_return;
    if (next->pieces.empty()) {
      co_await file.read_at(next->offset, into.subspan(next->into, next->bytes));
      continue;
    }
    together.resize(std::max<std::size_t>(together.size(), next->bytes));
    co_await file.read_at(next->offset, std::span(together).first(next->bytes));
    for (const weight_range& piece : next->pieces) {
      std::memcpy(into.data() + piece.into,
                  together.data() + (piece.offset - next->offset), piece.bytes);
    }
  }
}

/// Returns how many requests of a part are under way at once. Pieces that are read
/// together make them fewer: the readers that are left over find nothing to do.
std::size_t readers_of(const weight_slice& part) {
  const std::size_t requests =
      part.ranges().size() + part.bytes() / read_plan::most_bytes;
  return std::min(requests, most_requests);
}

/// Reads a part, with several requests under way. Precondition: the memory is as long.
task<void> read_part(const file_reader& file, weight_slice part,
                     std::span<std::byte> into) {
  read_plan plan(part.ranges());
  const std::size_t readers = readers_of(part);
  auto all = [&](scope& s) -> task<void> {
    for (std::size_t i = 0; i < readers; ++i) s.spawn(read_requests(file, plan, into));
    co_return;
  };
  co_await scope::run(all);
}

/// Reads the requests that are left, each through `slot`, and copies it to the device.
task<void> read_requests_on_device(const file_reader& file, read_plan& plan,
                                   device_view into, std::span<std::byte> slot) {
  for (;;) {
    const std::optional<planned_read> next = plan.next();
    if (!next) co_return;
    co_await file.read_at(next->offset, slot.first(next->bytes));
    const weight_range whole{next->offset, next->bytes, next->into};
    const auto pieces = next->pieces.empty() ? std::span(&whole, 1) : next->pieces;
    std::uint64_t bytes = 0;
    for (const weight_range& piece : pieces) {
      MW_ASSERT(piece.into == pieces.front().into + bytes,
                "a part has its pieces in the order of the file");
      std::memmove(slot.data() + bytes, slot.data() + (piece.offset - next->offset),
                   piece.bytes);
      bytes += piece.bytes;
    }
    co_await copy(into.slice(pieces.front().into, bytes),
                  const_buffer_view(slot.first(bytes)));
  }
}

/// Reads a part into device memory of bytes, with several requests under way.
task<void> read_part_on_device(const file_reader& file, weight_slice part,
                               device_view into, buffer_view staging) {
  read_plan plan(part.ranges());
  std::size_t readers = readers_of(part);
  std::vector<std::byte> own;
  std::span<std::byte> slots(static_cast<std::byte*>(staging.data()),
                             staging.size_bytes());
  if (staging.empty()) {
    own.resize(readers * read_plan::most_bytes);
    slots = own;
  }
  readers = std::min<std::size_t>(readers, slots.size() / read_plan::most_bytes);
  auto all = [&](scope& s) -> task<void> {
    for (std::size_t i = 0; i < readers; ++i) {
      s.spawn(read_requests_on_device(
          file, plan, into,
          slots.subspan(i * read_plan::most_bytes, read_plan::most_bytes)));
    }
    co_return;
  };
  co_await scope::run(all);
}

task<tensor> read_tensor(const file_reader& file, weight_slice part, dtype elements) {
  tensor made(part.shape(), elements);
  auto reading =
      read_part(file, std::move(part),
                std::span(static_cast<std::byte*>(made.data()), made.size_bytes()));
  co_await std::move(reading);
  co_return made;
}

/// Calls a function that checks a file's own words, and names the file in its error.
template <class Check>
auto naming_file(const std::string& path, Check&& check) {
  try {
    return check();
  } catch (const weights_error& e) {
    refuse_loading(path, e.what());
  }
}

task<std::vector<std::byte>> read_index(std::string path) {
  const file_reader file(std::move(path));
  if (file.size() > safetensors_header::longest) {
    refuse_loading(file.path(),
                   fmt::format("an index of {} bytes: at most {} are allowed",
                               file.size(), safetensors_header::longest));
  }
  std::vector<std::byte> text(file.size());
  co_await file.read_at(0, text);
  co_return text;
}

/// Returns the index of a folder, or all of its files.
std::vector<std::string> weights_in(const std::string& folder) {
  std::vector<std::string> indexes;
  std::vector<std::string> files;
  try {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(index_ending)) indexes.push_back(entry.path().string());
      if (name.ends_with(".safetensors")) files.push_back(entry.path().string());
    }
  } catch (const std::filesystem::filesystem_error& e) {
    file_failure fields;
    fields.path = folder;
    fields.code = e.code();
    fields.reason = e.code().message();
    throw file_error(std::move(fields));
  }
  std::ranges::sort(indexes);
  std::ranges::sort(files);
  if (indexes.size() > 1) {
    refuse_loading(folder, fmt::format("it has several indexes of weights, {} and {}: "
                                       "open one of them",
                                       indexes[0], indexes[1]));
  }
  if (indexes.empty() && files.empty()) refuse_loading(folder, "it has no *.safetensors");
  return indexes.empty() ? files : indexes;
}

/// Stands before what one member of a host tells the others: the tensor's bytes, or why
/// it has none.
struct once_head {
  std::uint8_t is_read;
};

/// The members of this host, of which the first reads.
struct once_members {
  [[nodiscard]] static once_members of(const world& w) {
    const world_view& view = w.view();
    const auto host = view.member(w.rank()).identity.host;
    std::vector<rank_t> here;
    for (rank_t each = 0; each < view.size(); ++each)
      if (view.member(each).identity.host == host) here.push_back(each);
    once_members found{here.front() == w.rank(), here.front(), std::move(here)};
    found.others.erase(found.others.begin());
    return found;
  }

  bool reads;
  rank_t reader;
  std::vector<rank_t> others;  ///< of this host, beside the reader
};

/// Takes what the reader says, also where this member has failed already (`wants` is
/// false): what is left would be taken for the next tensor. Errors: weights_error.
task<void> hear_once(world& w, rank_t reader, lane on, buffer_view into, bool wants) {
  const auto told = co_await w.recv_message<once_head>(from{reader}, on);
  const std::size_t bytes = told.info.bytes;
  const bool is_read = told.head.is_read != 0;
  if (wants && is_read && bytes == into.size_bytes()) {
    if (told.info.has_payload) co_await w.recv(into.as_bytes(), from{reader}, on);
    co_return;
  }
  if (!is_read && bytes > longest_trouble) w.fail("a reason that no reader gives");
  std::string rest(bytes, '\0');
  if (told.info.has_payload)
    co_await w.recv(std::as_writable_bytes(std::span(rest)), from{reader}, on);
  if (!wants) co_return;
  if (!is_read)
    throw weights_error(fmt::format("rank {} could not read it: {}", reader, rest));
  throw weights_error(fmt::format("rank {} has read {} bytes, and {} are wanted", reader,
                                  bytes, into.size_bytes()));
}

}  // namespace

struct weight_files::file {
  file(file_reader&& from, safetensors_header&& described) noexcept
      : reader(std::move(from)), header(std::move(described)) {}

  file_reader reader;
  safetensors_header header;
};

weight_files::weight_files() = default;
weight_files::weight_files(weight_files&&) noexcept = default;
weight_files& weight_files::operator=(weight_files&&) noexcept = default;
weight_files::~weight_files() = default;

task<weight_files> weight_files::open(std::string path) {
  std::error_code ignored;
  std::vector<std::string> paths;
  if (std::filesystem::is_directory(path, ignored)) {
    paths = weights_in(path);
  } else {
    paths.push_back(std::move(path));
  }
  auto opening = paths.front().ends_with(".json") ? open_index(std::move(paths.front()))
                                                  : open_all(std::move(paths));
  co_return co_await std::move(opening);
}

task<std::unique_ptr<weight_files::file>> weight_files::open_file(std::string path) {
  file_reader reader(std::move(path));
  std::array<std::byte, safetensors_header::prefix_bytes> prefix{};
  if (reader.size() >= prefix.size()) co_await reader.read_at(0, prefix);
  const std::uint64_t length = naming_file(reader.path(), [&] {
    return safetensors_header::length_in(prefix, reader.size());
  });
  std::vector<std::byte> text(length);
  co_await reader.read_at(prefix.size(), text);
  safetensors_header header = naming_file(
      reader.path(), [&] { return safetensors_header::parse(text, reader.size()); });
  co_return std::make_unique<file>(std::move(reader), std::move(header));
}

task<weight_files> weight_files::open_all(std::vector<std::string> paths) {
  weight_files made;
  for (std::string& path : paths) {
    auto opening = open_file(std::move(path));
    made.take(co_await std::move(opening));
  }
  co_return made;
}

void weight_files::take(std::unique_ptr<file> from) {
  for (const stored_tensor& each : from->header.tensors()) {
    const auto [at, is_new] = places_.try_emplace(each.name, place{from.get(), &each});
    if (!is_new) {
      refuse_loading(each.name,
                     fmt::format("it is in {} and in {}", at->second.in->reader.path(),
                                 from->reader.path()));
    }
  }
  files_.push_back(std::move(from));
}

task<weight_files> weight_files::open_index(std::string path) {
  auto reading = read_index(path);
  const std::vector<std::byte> text = co_await std::move(reading);
  const std::map<std::string, std::string> file_names =
      naming_file(path, [&] { return parse_weight_index(text); });
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::map<std::string, const file*> files;
  for (const auto& [tensor_name, file_name] : file_names) files[file_name] = nullptr;
  weight_files made;
  for (auto& [file_name, opened] : files) {
    auto opening = open_file((folder / file_name).string());
    made.files_.push_back(co_await std::move(opening));
    opened = made.files_.back().get();
  }
  for (const auto& [tensor_name, file_name] : file_names)
    made.take_named(*files.at(file_name), tensor_name);
  co_return made;
}

void weight_files::take_named(const file& from, const std::string& name) {
  const stored_tensor* const found = from.header.find(name);
  if (found == nullptr) {
    refuse_loading(name, fmt::format("the index says that it is in {}, which lacks it",
                                     from.reader.path()));
  }
  places_.try_emplace(found->name, place{&from, found});
}

std::vector<std::string> weight_files::names() const {
  std::vector<std::string> all;
  all.reserve(places_.size());
  for (const auto& [name, where] : places_) all.emplace_back(name);
  return all;
}

const stored_tensor* weight_files::find(std::string_view name) const noexcept {
  const auto at = places_.find(name);
  return at == places_.end() ? nullptr : at->second.what;
}

const weight_files::place& weight_files::place_of(std::string_view name) const {
  const auto at = places_.find(name);
  if (at == places_.end()) refuse_loading(name, "there is no such tensor");
  return at->second;
}

const stored_tensor& weight_files::at(std::string_view name) const {
  return *place_of(name).what;
}

const std::string& weight_files::file_of(std::string_view name) const {
  return place_of(name).in->reader.path();
}

task<tensor> weight_files::load(std::string_view name) const {
  return load(name, weight_slice::whole(at(name)));
}

task<tensor> weight_files::load(std::string_view name, weight_slice part) const {
  const place& from = place_of(name);
  if (!part.is_of(*from.what)) refuse_loading(name, "the part is one of another tensor");
  if (!from.what->elements) {
    refuse_loading(name, fmt::format("{} is no element type: use load_into, with bytes",
                                     from.what->type));
  }
  return read_tensor(from.in->reader, std::move(part), *from.what->elements);
}

task<void> weight_files::load_into(buffer_view memory, std::string_view name) const {
  return load_into(memory, name, weight_slice::whole(at(name)));
}

const weight_files::place& weight_files::fitting_place(std::string_view name,
                                                       const weight_slice& part,
                                                       std::size_t bytes,
                                                       dtype type) const {
  const place& from = place_of(name);
  if (!part.is_of(*from.what)) refuse_loading(name, "the part is one of another tensor");
  if (type != dtype::uint8 && type != from.what->elements) {
    refuse_loading(name, fmt::format("the memory is of {}, and the file of {}",
                                     name_of(type), from.what->type));
  }
  if (bytes != part.bytes()) {
    refuse_loading(name, fmt::format("the memory has {} bytes, and the part {}", bytes,
                                     part.bytes()));
  }
  return from;
}

task<void> weight_files::load_into(buffer_view memory, std::string_view name,
                                   weight_slice part) const {
  const place& from = fitting_place(name, part, memory.size_bytes(), memory.type());
  return read_part(from.in->reader, std::move(part),
                   std::span(static_cast<std::byte*>(memory.data()), part.bytes()));
}

task<void> weight_files::load_into(tensor& memory, std::string_view name,
                                   buffer_view staging) const {
  return load_into(memory, name, weight_slice::whole(at(name)), staging);
}

task<void> weight_files::load_into(tensor& memory, std::string_view name,
                                   weight_slice part, buffer_view staging) const {
  const place& from = fitting_place(name, part, memory.size_bytes(), memory.type());
  if (memory.place().is_host()) return load_into(memory.view(), name, std::move(part));
  if (!staging.empty() && staging.size_bytes() < read_plan::most_bytes) {
    throw std::invalid_argument(
        fmt::format("{}: {} bytes of staging memory: a request has up to {}", name,
                    staging.size_bytes(), read_plan::most_bytes));
  }
  const device_view into(memory.data(), memory.size_bytes(), dtype::uint8,
                         memory.stream());
  return read_part_on_device(from.in->reader, std::move(part), into, staging);
}

task<void> weight_files::load_once(world& w, tensor& memory, std::string name,
                                   lane on) const {
  const auto members = once_members::of(w);
  tensor staged;
  tensor& host = memory.place().is_host() ? memory : staged;
  std::string trouble;
  std::exception_ptr failed;
  try {
    static_cast<void>(fitting_place(name, weight_slice::whole(at(name)),
                                    memory.size_bytes(), memory.type()));
    if (!memory.place().is_host()) staged = tensor(memory.shape(), memory.type());
    if (members.reads) co_await load_into(host.view(), name);
  } catch (...) {
    failed = std::current_exception();
    trouble = handled_exception_text();
    trouble.resize(std::min(trouble.size(), longest_trouble));
  }
  // One that has failed takes part to the end: the others wait for it.
  buffer_view into;
  if (!failed) into = host.view();
  if (!members.reads) {
    co_await hear_once(w, members.reader, on, into, !failed);
  } else if (!members.others.empty()) {
    const_buffer_view said = into;
    if (failed) said = const_buffer_view(trouble);
    const once_head head{failed ? std::uint8_t{0} : std::uint8_t{1}};
    co_await w.send_message_to_all(head, members.others, said.as_bytes(), on);
  }
  if (failed) std::rethrow_exception(failed);
  if (!memory.place().is_host()) co_await copy(memory.device_view(), host.view());
}

}  // namespace manyworlds::inline v0
