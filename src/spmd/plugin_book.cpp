#include "spmd/plugin_book.hpp"

#include <unistd.h>

#include <algorithm>

#include "manyworlds/io/file_reader.hpp"
#include "spmd/content_digest.hpp"
#include "spmd/session_core.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// What is read and added up at a time, so that other tasks have their turns.
constexpr std::size_t most_bytes_of_turn = std::size_t{1} << 20;

struct read_content {
  tensor bytes;
  std::string digest;
};

task<read_content> read_whole(std::string path) {
  const file_reader file(std::move(path));
  read_content all{tensor(shape(file.size()), dtype::uint8), {}};
  const std::span<std::byte> into = std::as_writable_bytes(all.bytes.as<std::uint8_t>());
  content_digest digest;
  for (std::size_t at = 0; at < into.size(); at += most_bytes_of_turn) {
    const auto some = into.subspan(at, std::min(most_bytes_of_turn, into.size() - at));
    co_await file.read_at(at, some);
    digest.add(some);
  }
  all.digest = digest.text();
  co_return all;
}

}  // namespace

void plugin_book::keep(std::string what, std::vector<int> workers, dref<plugin> given) {
  // A second one of the same changes nothing at the workers, and is dropped here.
  loaded_.try_emplace(key(std::move(what), std::move(workers)), std::move(given));
}

task<void> plugin_book::load(std::shared_ptr<session_core> core, std::vector<int> workers,
                             std::string file, source_position where) {
  const mesh all = access::make<mesh>(core, workers);
  dref<plugin> given =
      co_await all.call(load_function, file).replayable().within(duration::max(), where);
  core->plugins().keep(std::move(file), std::move(workers), std::move(given));
}

task<void> plugin_book::upload(std::shared_ptr<session_core> core,
                               std::vector<int> workers, std::string file,
                               source_position where) {
  const read_content content = co_await read_whole(file);
  const std::string& digest = content.digest;
  const std::uint64_t bytes = content.bytes.size_bytes();
  plugin_book& book = core->plugins();
  auto at = book.contents_.find(digest);
  if (at == book.contents_.end()) {
    const auto all = std::as_bytes(content.bytes.as<const std::uint8_t>());
    at = book.contents_.emplace(digest, content_file::in_memory(all)).first;
  }
  const int descriptor = at->second.descriptor();
  const std::int64_t pid = ::getpid();

  const mesh all = access::make<mesh>(core, workers);
  const std::vector<bool> have =
      co_await all.call(find_content_function, digest, bytes, pid, descriptor).all(where);
  std::vector<int> found, lacking;
  for (std::size_t rank = 0; rank < have.size(); ++rank)
    (have[rank] ? found : lacking).push_back(workers[rank]);
  const tensor nothing(shape(0), dtype::uint8);
  for (const std::vector<int>* each : {&found, &lacking}) {
    if (each->empty()) continue;
    const mesh some = access::make<mesh>(core, *each);
    const tensor& given = each == &lacking ? content.bytes : nothing;
    dref<plugin> made =
        co_await some
            .call(load_content_function, file, digest, bytes, pid, descriptor, given)
            .replayable()
            .within(duration::max(), where);
    book.keep(digest, *each, std::move(made));
  }
}

}  // namespace manyworlds::inline v0::detail
