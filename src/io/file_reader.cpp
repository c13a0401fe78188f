#include "manyworlds/io/file_reader.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <stdexcept>
#include <utility>

#include "io/current_reactor.hpp"
#include "io/descriptor.hpp"
#include "io/stream.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

constexpr std::size_t most_bytes_of_request = std::size_t{1} << 20;
// The kernel counts a file's bytes with a sign.
constexpr std::uint64_t longest_file = std::numeric_limits<std::int64_t>::max();

std::string text_of_file_failure(const file_failure& of) {
  if (of.bytes == 0) return fmt::format("{}: cannot be opened: {}", of.path, of.reason);
  return fmt::format("{}: cannot read {} bytes from byte {}: {}", of.path, of.bytes,
                     of.offset, of.reason);
}

[[noreturn]] void refuse_to_open(const std::string& path, int error) {
  file_failure fields;
  fields.path = path;
  fields.code = std::error_code(error, std::generic_category());
  fields.reason = fields.code.message();
  throw file_error(std::move(fields));
}

}  // namespace

file_error::file_error(file_failure fields) {
  std::string text = text_of_file_failure(fields);
  state_ = std::make_shared<const state>(state{std::move(fields), std::move(text)});
}

const char* file_error::what() const noexcept { return state_->text.c_str(); }

file_reader::file_reader(std::string path) : path_(std::move(path)) {
  // Without O_NONBLOCK the open of a pipe would wait for its writer.
  unique_descriptor opened(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened) refuse_to_open(path_, errno);
  struct stat facts {};
  if (::fstat(opened.get(), &facts) != 0) refuse_to_open(path_, errno);
  if (!S_ISREG(facts.st_mode)) {
    file_failure fields;
    fields.path = path_;
    fields.reason = "it is no regular file";
    throw file_error(std::move(fields));
  }
  // With it io_uring gives up where it would have to wait for the disk.
  if (::fcntl(opened.get(), F_SETFL, 0) != 0) refuse_to_open(path_, errno);
  size_ = static_cast<std::uint64_t>(facts.st_size);
  descriptor_ = opened.release();
}

file_reader::file_reader(file_reader&& other) noexcept
    : path_(std::move(other.path_)),
      size_(other.size_),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

file_reader& file_reader::operator=(file_reader&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

file_reader::~file_reader() { unique_descriptor closed(descriptor_); }

task<void> file_reader::read_at(std::uint64_t offset, std::span<std::byte> into) const {
  reactor* const home = current_reactor();
  if (home == nullptr) {
    throw std::logic_error(
        "file_reader needs a task on the reactor of a runtime: a foreign executor reads "
        "no files");
  }
  if (into.empty()) co_return;
  if (offset > longest_file - std::min<std::uint64_t>(longest_file, into.size()))
    refuse_beyond_end(offset, into.size());
  std::size_t done = 0;
  while (done < into.size()) {
    const std::size_t next = std::min(into.size() - done, most_bytes_of_request);
    io_awaiter request(*home, io_kind::read_at, static_cast<socket_handle>(descriptor_));
    request.with_buffer(into.data() + done, next).with_offset(offset + done);
    const io_result some = co_await request;
    if (!some.ok()) refuse(offset, into.size(), some.error());
    if (some.count() == 0) refuse_beyond_end(offset, into.size());
    done += some.count();
  }
}

void file_reader::refuse(std::uint64_t offset, std::uint64_t bytes, int error) const {
  file_failure fields;
  fields.path = path_;
  fields.offset = offset;
  fields.bytes = bytes;
  fields.code = std::error_code(error, std::generic_category());
  fields.reason = fields.code.message();
  throw file_error(std::move(fields));
}

void file_reader::refuse_beyond_end(std::uint64_t offset, std::uint64_t bytes) const {
  // It may have been cut since it was opened.
  struct stat facts {};
  const bool is_known = ::fstat(descriptor_, &facts) == 0;
  file_failure fields;
  fields.path = path_;
  fields.offset = offset;
  fields.bytes = bytes;
  fields.reason = is_known ? fmt::format("the file ends at byte {}", facts.st_size)
                           : "the file ends before";
  throw file_error(std::move(fields));
}

}  // namespace manyworlds::inline v0
