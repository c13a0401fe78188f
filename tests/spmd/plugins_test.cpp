// Plugins: functions that workers load while they run, from a file of theirs or of the
// controller's; what is none is refused with its name (disco A9 to A12).
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "../support/refused_calls.hpp"
#include "memory/sealable_memory.hpp"
#include "plugin_functions.hpp"
#include "session_fixture.hpp"
#include "spmd/content_digest.hpp"
#include "spmd/content_file.hpp"
#include "spmd/session_core.hpp"

/// Whether the test that ran last has loaded uploads into this process, which keeps their
/// descriptors.
static bool has_uploaded = false;
extern "C" bool libraries_keep_what_they_open() {
  return std::exchange(has_uploaded, false);
}

namespace manyworlds::spmd_tests {

namespace {

std::string plugin_file(const std::string& name) {
  return std::string(PLUGIN_FOLDER) + "/" + name + ".so";
}

/// A folder of this test's own, which goes with it.
struct own_folder {
  own_folder() : path(std::filesystem::temp_directory_path() / "mw-plugins-XXXXXX") {
    std::string name = path.string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  own_folder(const own_folder&) = delete;
  own_folder& operator=(const own_folder&) = delete;
  ~own_folder() { std::filesystem::remove_all(path); }

  [[nodiscard]] std::string file(const std::string& name) const {
    return (path / name).string();
  }

  std::filesystem::path path;
};

/// Uses what the good plugin has, on two workers.
task<void> check_good(session& s) {
  const std::vector<int> twice = co_await s.call(doubled, 21).all();
  CHECK(twice == ints(42, 42));
  const std::vector<int> sums = co_await s.call(added_up).all();
  CHECK(sums == ints(3, 3));
  const std::vector<int> slow = co_await s.call(doubled_slowly, 4).all();
  CHECK(slow == ints(8, 8));
  const dref<kept_words> kept = co_await s.call(keep_words, "of the plugin");
  const std::string words = co_await s.call(words_of, kept).from(1);
  CHECK(words == "of the plugin");
  const any_value total =
      co_await s.call(any_function("plugin.total", alone), 1.5, 2.0).from(0);
  CHECK(total.as<double>() == 3.5);
  const refusal thrown = co_await refusal_of(s.call(throws_own, "its own words"));
  CHECK(thrown.cause == cause::handler_failed);
  CHECK(thrown.says("its own words"));
  const std::vector<int> old = co_await s.call(add_one, 1).all();
  CHECK(old == ints(2, 2));
}

}  // namespace

TEST_SUITE_BEGIN("spmd");

TEST_CASE(
    "disco A9, A10: a plugin's functions are called as the program's, in collectives "
    "too") {
  in_each_kind(2, [](session& s) -> task<void> {
    const refusal before = co_await refusal_of(s.call(doubled, 1));
    CHECK(before.says("it has no function \"plugin.doubled\""));
    co_await s.load(plugin_file("good"));
    co_await check_good(s);
    // Once more changes nothing.
    co_await s.load(plugin_file("good"));
    co_await check_good(s);
    const std::vector<int> times = co_await s.call(times_initialised).all();
    CHECK(times == ints(1, 1));
  });
}

TEST_CASE("disco A11: the file of a plugin may go when all have loaded it") {
  in_each_kind(2, [](session& s) -> task<void> {
    const own_folder own;
    const std::string file = own.file("model.so");
    std::filesystem::copy_file(plugin_file("good"), file);
    co_await s.load(file);
    std::filesystem::remove(file);
    co_await check_good(s);
  });
}

TEST_CASE("a mesh loads a plugin on its own workers") {
  in_each_kind(2, [](session& s) -> task<void> {
    co_await s.mesh(1).load(plugin_file("good"));
    const int there = co_await s.call(doubled, 3).on(1).from(1);
    CHECK(there == 6);
    const refusal elsewhere = co_await refusal_of(s.call(doubled, 3).on(0));
    CHECK(elsewhere.says("worker 0, incarnation 1: it has no function"));
    co_await s.load(plugin_file("good"));
    co_await check_good(s);
  });
}

TEST_CASE("a worker that was replaced loads its plugins, in turn with what they make") {
  in_each_kind(2, [](session& s) -> task<void> {
    const dref<part_of_model> first = co_await s.call(load_part, 1).replayable();
    co_await s.load(plugin_file("good"));
    const dref<kept_words> kept = co_await s.call(keep_words, "kept").replayable();
    for (int round = 0; round < 2; ++round) {
      co_await s.respawn(1);
      const std::string words = co_await s.call(words_of, kept).on(1).from(1);
      CHECK(words == "kept");
      co_await check_good(s);
    }
  });
}

TEST_CASE("what is no plugin is refused with worker, file and reason; the rest goes on") {
  const own_folder own;
  std::ofstream(own.file("text.so")) << "this is no shared object";
  struct {
    std::string file;
    std::string why;
  } const cases[] = {
      {own.file("none.so"), "No such file or directory"},
      {"libmanyworlds-has-none.so", "cannot open shared object file"},
      {own.file("text.so"), "file too short"},
      {own.path.string(), "cannot read file data"},
      {plugin_file("absent"), "it defines no mw::plugin manyworlds_plugin: "},
      {plugin_file("small"), "what it defines as manyworlds_plugin is no mw::plugin"},
      {plugin_file("other_build"),
       "it is of Manyworlds 0.0.7 with C++ ABI 1, standard library 2.3 and layout "
       "0000000000000004, and this worker of Manyworlds " MANYWORLDS_VERSION_STRING},
      {plugin_file("separate"), "link this program with -rdynamic"},
      {plugin_file("throwing"),
       "its functions: function table: two functions are called \"plugin.doubled\""},
      {plugin_file("clashing"), "\"add_one\" is there already, of the program"},
      {plugin_file("clashing_later"),
       "\"plugin.doubled\" is there already, of " + plugin_file("good")},
  };
  in_each_kind(2, [&](session& s) -> task<void> {
    co_await s.load(plugin_file("good"));
    for (const auto& each : cases) {
      CAPTURE(each.file);
      const refusal loaded = co_await refusal_of(s.load(each.file));
      CAPTURE(loaded.text);
      CHECK(loaded.cause == cause::handler_failed);
      CHECK(loaded.function == "mw.load");
      CHECK(loaded.workers.size() >= 1);
      CHECK(loaded.says("incarnation 1: plugin " + each.file + ": "));
      CHECK(loaded.says(each.why));
    }
    const refusal clashing =
        co_await refusal_of(s.call(any_function("clashing.own", alone), 1));
    CHECK(clashing.says("it has no function \"clashing.own\""));
    co_await check_good(s);
  });
}

#if MANYWORLDS_HAS_SECRET

namespace {

std::vector<std::byte> content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> all{std::istreambuf_iterator<char>(in), {}};
  const auto bytes = std::as_bytes(std::span(all));
  return {bytes.begin(), bytes.end()};
}

/// Bytes of tensors that a worker which is replaced would be sent again: those that the
/// uploads to it have sent.
std::size_t bytes_sent(const session& s, int worker) {
  const mesh& all = s;
  register_book& book = access::core_ptr(all)->registers();
  std::size_t sum = 0;
  for (const register_id each : book.replayable_on(worker)) {
    for (const auto& part : book.kept(each, worker)->beside) sum += part.size();
  }
  return sum;
}

/// Descriptors of this process.
std::ptrdiff_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

}  // namespace

TEST_CASE("disco A12: a file of the controller's is uploaded, and need not stay there") {
  has_uploaded = true;
  in_each_kind(2, [](session& s) -> task<void> {
    const own_folder own;
    const std::string file = own.file("model.so");
    std::filesystem::copy_file(plugin_file("good"), file);
    co_await s.upload(file);
    // This host's workers open it.
    CHECK(bytes_sent(s, 0) == 0);
    std::filesystem::remove(file);
    co_await check_good(s);
    const dref<kept_words> kept = co_await s.call(keep_words, "kept").replayable();
    co_await s.respawn(0);
    const std::string words = co_await s.call(words_of, kept).on(0).from(0);
    CHECK(words == "kept");
    co_await check_good(s);
    // By its content it is there already.
    std::filesystem::copy_file(plugin_file("good"), file);
    co_await s.upload(file);
    co_await s.mesh(1).upload(file);
    const std::vector<int> times = co_await s.call(times_initialised).all();
    CHECK(times == ints(1, 1));
  });
}

TEST_CASE("an upload that is no plugin, or no file, is refused by the file's name") {
  has_uploaded = true;
  in_each_kind(2, [](session& s) -> task<void> {
    const own_folder own;
    std::string failed;
    try {
      co_await s.upload(own.file("none.so"));
    } catch (const file_error& e) {
      failed = e.what();
    }
    CHECK(failed.find("none.so") != std::string::npos);
    std::ofstream(own.file("empty.so")) << "";
    std::ofstream(own.file("text.so")) << "this is no shared object";
    for (const std::string& each : {own.file("empty.so"), own.file("text.so"),
                                    plugin_file("absent"), plugin_file("clashing")}) {
      CAPTURE(each);
      for (int round = 0; round < 2; ++round) {
        const refusal uploaded = co_await refusal_of(s.upload(each));
        CHECK(uploaded.cause == cause::handler_failed);
        CHECK(uploaded.says("incarnation 1: plugin " + each + ": "));
      }
    }
    co_await s.upload(plugin_file("good"));
    co_await check_good(s);
  });
}

TEST_CASE("each upload is a file of its own, also when the one before is loaded") {
  has_uploaded = true;
  in_each_kind(2, [](session& s) -> task<void> {
    co_await s.upload(plugin_file("clashing_later"));
    const refusal next = co_await refusal_of(s.upload(plugin_file("throwing")));
    CHECK(next.says("two functions are called"));
    const refusal last = co_await refusal_of(s.upload(plugin_file("good")));
    CHECK(last.says("there already, of " + plugin_file("clashing_later")));
  });
}

TEST_CASE("where memory is refused the bytes are sent once, and loaded from a file") {
  has_uploaded = true;
  testing::where_refused(testing::call_filter().refuse(SYS_memfd_create, EPERM), [] {
    in_each_kind(2, [](session& s) -> task<void> {
      const std::string digest = digest_of(content_of(plugin_file("good")));
      const auto have = [&] {
        return s.call(find_content_function, digest, 1U, 0, -1).all();
      };
      const std::vector<bool> before = co_await have();
      CHECK(before == std::vector<bool>{false, false});
      co_await s.upload(plugin_file("good"));
      co_await check_good(s);
      const std::vector<bool> after = co_await have();
      CHECK(after == std::vector<bool>{true, true});
      const std::size_t once = std::filesystem::file_size(plugin_file("good"));
      CHECK(bytes_sent(s, 0) == once);
      co_await s.mesh(worker_list(1, 0)).upload(plugin_file("good"));
      CHECK(bytes_sent(s, 1) == once);
      co_await s.respawn(1);
      co_await check_good(s);
    });
  });
}

TEST_CASE("bytes with another SHA-256 than was said are refused, and never loaded") {
  has_uploaded = true;
  in_each_kind(2, [](session& s) -> task<void> {
    const std::vector<std::byte> whole = content_of(plugin_file("absent"));
    tensor damaged = tensor::copy_of(
        const_buffer_view(whole.data(), whole.size(), dtype::uint8), shape(whole.size()));
    damaged.as<std::uint8_t>()[whole.size() / 2] ^= 1;
    const std::string digest = digest_of(whole);
    const refusal given = co_await refusal_of(
        s.call(load_content_function, "model.so", digest, whole.size(), 0, -1, damaged));
    CHECK(given.says("plugin model.so: what came has the SHA-256 "));
    CHECK(given.says("in place of " + digest));
    const tensor nothing(shape(0), dtype::uint8);
    const refusal absent = co_await refusal_of(
        s.call(load_content_function, "model.so", digest, whole.size(), 0, -1, nothing));
    CHECK(absent.says("plugin model.so: it is empty, or this worker cannot"));
    const refusal other_type = co_await refusal_of(
        s.call(load_content_function, "model.so", digest, whole.size(), 0, -1,
               tensor::zeros(shape(1), dtype::float32)));
    CHECK(other_type.cause == cause::handler_failed);
    const refusal none = co_await refusal_of(s.call(doubled, 1));
    CHECK(none.says("it has no function"));
    co_await s.upload(plugin_file("good"));
    co_await check_good(s);
  });
}

TEST_CASE("only sealed memory with the said content is opened of another process") {
  const std::vector<std::byte> content = content_of(plugin_file("absent"));
  const std::string digest = digest_of(content);
  CHECK(digest_of({}) ==
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  const content_file made = content_file::in_memory(content);
  REQUIRE(made);
  const int here = made.descriptor();
  const pid_t pid = ::getpid();
  const std::ptrdiff_t before = descriptors();
  const auto opens = [&](int descriptor, std::size_t bytes, const std::string& of) {
    return static_cast<bool>(content_file::of_process(pid, descriptor, bytes, of));
  };
  CHECK(opens(here, content.size(), digest));
  CHECK_FALSE(opens(here, content.size() - 1, digest));
  CHECK_FALSE(opens(here, 0, digest));
  CHECK_FALSE(opens(here, content.size(), digest_of({})));
  CHECK_FALSE(opens(-1, content.size(), digest));
  CHECK_FALSE(opens(1'000'000, content.size(), digest));
  CHECK_FALSE(content_file::of_process(0, here, content.size(), digest));
  CHECK_FALSE(content_file::of_process(-1, here, content.size(), digest));
  const int unsealed = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(::write(unsealed, content.data(), content.size()) ==
          static_cast<ssize_t>(content.size()));
  CHECK_FALSE(opens(unsealed, content.size(), digest));
  // Its content may still change.
  REQUIRE(::fcntl(unsealed, F_ADD_SEALS, size_seals) == 0);
  CHECK_FALSE(opens(unsealed, content.size(), digest));
  const int on_disk = ::open(plugin_file("absent").c_str(), O_RDONLY | O_CLOEXEC);
  CHECK_FALSE(opens(on_disk, content.size(), digest));
  int pipe[2];
  REQUIRE(::pipe2(pipe, O_CLOEXEC) == 0);
  CHECK_FALSE(opens(pipe[0], content.size(), digest));
  for (const int each : {unsealed, on_disk, pipe[0], pipe[1]}) ::close(each);
  CHECK(descriptors() == before);
}

TEST_CASE("memory that must not be executed is copied to a file without a name") {
  const std::vector<std::byte> content = content_of(plugin_file("absent"));
  const own_folder own;
  content_file file = content_file::in_memory(content);
  const int in_memory = file.descriptor();
  file = std::move(file).executable();
  CHECK(file.descriptor() == in_memory);
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  ::setenv("TMPDIR", own.path.c_str(), 1);
  // As the loader maps code.
  testing::where_refused(
      testing::call_filter().refuse_with_value(SYS_mmap, 2, PROT_READ | PROT_EXEC, EPERM),
      [&] { file = std::move(file).executable(); });
  before ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
  CHECK(content_of(file.path()) == content);
  struct stat facts {};
  REQUIRE(::fstat(file.descriptor(), &facts) == 0);
  CHECK(facts.st_nlink == 0);
  CHECK(::fcntl(file.descriptor(), F_GET_SEALS) <= 0);
  CHECK(std::filesystem::is_empty(own.path));
  void* const library = ::dlopen(file.path().c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  CHECK(::dlsym(library, "number_of_no_plugin") != nullptr);
  ::dlclose(library);
}

#endif

TEST_SUITE_END();

}  // namespace manyworlds::spmd_tests
