// Weights are read from files: each worker has its part, and what is wrong is named
// (disco A33 to A41).
#include "manyworlds/weights/weight_files.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "io/reactor_fixture.hpp"
#include "manyworlds/io/file_reader.hpp"
#include "manyworlds/memory/shared_buffer.hpp"
#include "manyworlds/store/memory_store.hpp"
#include "manyworlds/world/runtime.hpp"
#include "manyworlds/world/world.hpp"
#include "simulation/simulated_node.hpp"
#include "support/entries.hpp"
#include "weights/of_pypi.hpp"
#include "weights/weight_folder.hpp"

using namespace manyworlds;
using namespace manyworlds::testing;
using namespace manyworlds_tests;

TEST_SUITE_BEGIN("weights");

namespace {

/// Opens weights on a reactor of this machine.
weight_files opened(reactor_fixture& on, const std::string& path) {
  return on.run(weight_files::open(path));
}

/// What is said of weights that are opened.
std::string opening_refusal(const std::string& path) {
  reactor_fixture f(engine_kind::epoll);
  const auto open_it = [](std::string what) -> task<std::string> {
    std::string said;
    try {
      auto opening = weight_files::open(std::move(what));
      static_cast<void>(co_await std::move(opening));
    } catch (const weights_error& e) {
      said = e.what();
    } catch (const file_error& e) {
      said = e.what();
    }
    co_return said;
  };
  return f.run(open_it(path));
}

/// What a load says at once.
template <class Load>
std::string load_refusal(Load&& load) {
  try {
    auto never_run = load();
  } catch (const weights_error& e) {
    return e.what();
  }
  return "";
}

/// Takes part `part` of each piece of a tensor, element by element.
std::vector<std::uint8_t> part_of(const written_tensor& whole, std::size_t element_bytes,
                                  std::size_t dimension,
                                  const std::vector<std::int64_t>& pieces,
                                  std::int64_t part, std::int64_t parts) {
  std::size_t inner = element_bytes;
  for (std::size_t d = dimension + 1; d < whole.shape.size(); ++d)
    inner *= static_cast<std::size_t>(whole.shape[d]);
  const auto length = static_cast<std::size_t>(whole.shape[dimension]);
  std::vector<std::uint8_t> taken;
  for (std::size_t at = 0; at * inner < whole.bytes.size(); ++at) {
    auto along = static_cast<std::int64_t>(at % length);
    std::size_t piece = 0;
    while (along >= pieces[piece]) along -= pieces[piece++];
    const std::int64_t each = pieces[piece] / parts;
    if (along < part * each || along >= (part + 1) * each) continue;
    const auto from = whole.bytes.begin() + static_cast<std::ptrdiff_t>(at * inner);
    taken.insert(taken.end(), from, from + static_cast<std::ptrdiff_t>(inner));
  }
  return taken;
}

bool are_same(const tensor& read, const std::vector<std::uint8_t>& bytes) {
  return read.size_bytes() == bytes.size() &&
         std::equal(bytes.begin(), bytes.end(),
                    static_cast<const std::uint8_t*>(read.data()));
}

}  // namespace

TEST_CASE("a file of PyPI's safetensors is loaded as it was saved") {
  const weight_folder folder;
  const std::string path = folder.write("model.safetensors", file_of_pypi());
  REQUIRE(std::filesystem::file_size(path) == bytes_of_pypi);
  FOR_EVERY_ENGINE(kind) {
    reactor_fixture f(kind);
    const weight_files weights = opened(f, path);
    CHECK(weights.names() ==
          std::vector<std::string>{"b", "empty", "half", "mask", "scalar", "w"});
    CHECK(weights.file_of("w") == path);
    const tensor b = f.run(weights.load("b"));
    CHECK(std::ranges::equal(b.as<std::int64_t>(), std::vector<std::int64_t>{-1, 0, 1}));
    const tensor w = f.run(weights.load("w"));
    CHECK(w.shape() == shape(4, 6));
    for (std::size_t i = 0; i < 24; ++i) CHECK(w.as<float>()[i] == static_cast<float>(i));
    const tensor scalar = f.run(weights.load("scalar"));
    CHECK(scalar.shape() == shape());
    CHECK(scalar.as<double>()[0] == 2.5);
    const tensor half = f.run(weights.load("half"));
    CHECK(static_cast<float>(half.as<f16>()[1]) == -2.0F);
    const tensor empty = f.run(weights.load("empty"));
    CHECK(empty.shape() == shape(0, 4));
    std::vector<std::uint8_t> mask(2);
    f.run(weights.load_into(mask, "mask"));
    CHECK(mask == std::vector<std::uint8_t>{1, 0});
    const auto columns = weight_slice::split(weights.at("w"), 1, 1, 3);
    const tensor middle = f.run(weights.load("w", columns));
    CHECK(middle.shape() == shape(4, 2));
    CHECK(std::ranges::equal(middle.as<float>(),
                             std::vector<float>{2, 3, 8, 9, 14, 15, 20, 21}));
  }
}

TEST_CASE("disco A33, A39, A41: each worker reads its part, along any dimension") {
  const weight_folder folder;
  // More than a request long; short rows, rows of 64 KiB, and three dimensions.
  const std::vector<written_tensor> written{
      made_tensor("short", "BF16", 2, {6000, 96}, 1),
      made_tensor("long", "F32", 4, {12, 98'304}, 2),
      made_tensor("deep", "I8", 1, {4, 12, 6}, 3),
      made_tensor("flat", "U8", 1, {24}, 4),
  };
  const std::string path = folder.write("model.safetensors", safetensors_of(written));
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    const weight_files weights = opened(f, path);
    for (const written_tensor& each : written) {
      const stored_tensor& stored = weights.at(each.name);
      CHECK(are_same(f.run(weights.load(each.name)), each.bytes));
      for (std::size_t d = 0; d < each.shape.size(); ++d) {
        const std::int64_t length = each.shape[d];
        // As query, key and value, where that divides.
        std::vector<std::vector<std::int64_t>> pieces{{length}};
        if (length % 4 == 0) pieces.push_back({length / 2, length / 4, length / 4});
        for (const auto& lengths : pieces) {
          for (const std::int64_t parts : {1, 2, 3}) {
            const bool divides = std::ranges::all_of(
                lengths, [&](std::int64_t piece) { return piece % parts == 0; });
            if (!divides) continue;
            CAPTURE(each.name);
            CAPTURE(d);
            CAPTURE(parts);
            const std::int64_t part = parts - 1;
            const auto slice =
                weight_slice::split_pieces(stored, d, lengths, part, parts);
            const tensor read = f.run(weights.load(each.name, slice));
            CHECK(read.shape() == slice.shape());
            CHECK(read.type() == *stored.elements);
            CHECK(are_same(read,
                           part_of(each, stored.element_bytes, d, lengths, part, parts)));
          }
        }
      }
    }
  }
}

TEST_CASE(
    "an index names the file of each tensor, and tensors that it does not name are "
    "none") {
  const weight_folder folder;
  const written_tensor a = made_tensor("a", "F32", 4, {3}, 1);
  const written_tensor b = made_tensor("b", "F32", 4, {5}, 2);
  const written_tensor spare = made_tensor("spare", "F32", 4, {1}, 3);
  folder.write("x-1.safetensors", safetensors_of({a, spare}));
  folder.write("x-2.safetensors", safetensors_of({b}));
  const std::string index =
      folder.write("model.safetensors.index.json",
                   R"({"weight_map":{"a":"x-1.safetensors","b":"x-2.safetensors"}})");
  reactor_fixture f(engine_kind::automatic);
  for (const std::string& path : {folder.path(), index}) {
    const weight_files weights = opened(f, path);
    CHECK(weights.names() == std::vector<std::string>{"a", "b"});
    CHECK(weights.file_of("b") == folder.at("x-2.safetensors"));
    CHECK(weights.find("spare") == nullptr);
    CHECK(are_same(f.run(weights.load("a")), a.bytes));
    CHECK(are_same(f.run(weights.load("b")), b.bytes));
  }
}

TEST_CASE("disco A34: a folder without an index has the tensors of all its files") {
  const weight_folder folder;
  const written_tensor a = made_tensor("a", "F32", 4, {3}, 1);
  const written_tensor b = made_tensor("b", "F32", 4, {5}, 2);
  folder.write("1.safetensors", safetensors_of({a}));
  folder.write("2.safetensors", safetensors_of({b}));
  folder.write("config.json", "{}");
  reactor_fixture f(engine_kind::automatic);
  weight_files first = opened(f, folder.path());
  const weight_files weights = std::move(first);
  CHECK(weights.names() == std::vector<std::string>{"a", "b"});
  CHECK(are_same(f.run(weights.load("b")), b.bytes));
  // Presharded: a worker opens a file of its own.
  const weight_files own = opened(f, folder.at("2.safetensors"));
  CHECK(own.names() == std::vector<std::string>{"b"});
}

TEST_CASE(
    "disco A40: weights that contradict themselves are named with file and tensor") {
  const weight_folder folder;
  CHECK(opening_refusal(folder.path()) == folder.path() + ": it has no *.safetensors");
  CHECK(opening_refusal(folder.at("none")) ==
        folder.at("none") + ": cannot be opened: No such file or directory");
  const std::string whole = safetensors_of({made_tensor("a", "F32", 4, {3})});
  const std::string cut = folder.write("cut", whole.substr(0, whole.size() - 1));
  CHECK(opening_refusal(cut) == cut + ": a: it ends behind the end of the file");
  const std::string tiny = folder.write("tiny", "1234567");
  CHECK(opening_refusal(tiny) == tiny + ": safetensors: the file ends within its header");
  const std::string huge = folder.write("huge", std::string(9, '\xff'));
  CHECK(opening_refusal(huge).find("at most 100000000 are allowed") != std::string::npos);

  folder.write("1.safetensors", whole);
  folder.write("2.safetensors", whole);
  CHECK(opening_refusal(folder.path()) == "a: it is in " + folder.at("1.safetensors") +
                                              " and in " + folder.at("2.safetensors"));
  const std::string index = "model.safetensors.index.json";
  const auto refused_index = [&](const std::string& text) {
    folder.write(index, text);
    return opening_refusal(folder.path());
  };
  CHECK(refused_index(R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})") ==
        "b: the index says that it is in " + folder.at("2.safetensors") +
            ", which lacks it");
  CHECK(refused_index(R"({"weight_map":{"a":"3.safetensors"}})") ==
        folder.at("3.safetensors") + ": cannot be opened: No such file or directory");
  for (const char* escaping : {"../x", "/etc/passwd", "..", ""}) {
    CHECK(refused_index(std::string(R"({"weight_map":{"a":")") + escaping + "\"}}") ==
          folder.at(index) + ": a: its file does not lie beside the index");
  }
  CHECK(refused_index("{").starts_with(folder.at(index) + ": index of weights: no JSON"));
  folder.write("other.safetensors.index.json", "{}");
  CHECK(opening_refusal(folder.path()) ==
        folder.path() + ": it has several indexes of weights, " + folder.at(index) +
            " and " + folder.at("other.safetensors.index.json") + ": open one of them");
}

TEST_CASE("what fits to no tensor of the file is refused before anything is read") {
  const weight_folder folder;
  const std::string path =
      folder.write("x", safetensors_of({made_tensor("a", "F32", 4, {4, 6}),
                                        made_tensor("b", "BOOL", 1, {96})}));
  reactor_fixture f(engine_kind::automatic);
  const weight_files weights = opened(f, path);
  CHECK(load_refusal([&] { return weights.load("c"); }) == "c: there is no such tensor");
  CHECK(load_refusal([&] { return weights.load("b"); }) ==
        "b: BOOL is no element type: use load_into, with bytes");
  const auto of_b = weight_slice::whole(weights.at("b"));
  CHECK(load_refusal([&] { return weights.load("a", of_b); }) ==
        "a: the part is one of another tensor");
  std::vector<float> few(23);
  CHECK(load_refusal([&] { return weights.load_into(few, "a"); }) ==
        "a: the memory has 92 bytes, and the part 96");
  std::vector<double> other(12);
  CHECK(load_refusal([&] { return weights.load_into(other, "a"); }) ==
        "a: the memory is of float64, and the file of F32");
  std::vector<float> exact(24);
  CHECK(load_refusal([&] { return weights.load_into(exact, "a"); }) == "");
}

TEST_CASE("a file that has become shorter ends a load by name") {
  const weight_folder folder;
  const written_tensor a = made_tensor("a", "U8", 1, {3 << 20});
  const std::string path = folder.write("x", safetensors_of({a}));
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    const weight_files weights = opened(f, path);
    std::filesystem::resize_file(path, 2 << 20);
    const auto load = [](const weight_files& from) -> task<std::string> {
      std::string said;
      try {
        static_cast<void>(co_await from.load("a"));
      } catch (const file_error& e) {
        said = e.what();
      }
      co_return said;
    };
    const std::string said = f.run(load(weights));
    CHECK(said.starts_with(path + ": cannot read "));
    CHECK(said.ends_with(": the file ends at byte 2097152"));
    folder.write("x", safetensors_of({a}));
  }
}

TEST_CASE("law 4: a load that is cancelled leaves the memory alone afterwards") {
  const weight_folder folder;
  const written_tensor a = made_tensor("a", "U8", 1, {4096, 4096});
  const std::string path = folder.write("x", safetensors_of({a}));
  FOR_EACH_ENGINE(kind) {
    reactor_fixture f(kind);
    const weight_files weights = opened(f, path);
    const auto columns = weight_slice::split(weights.at("a"), 1, 1, 4);
    std::vector<std::uint8_t> memory(4 << 20);
    for (const int turns : {0, 1, 2, 5, 10}) {
      running<void> load(f, weights.load_into(memory, "a", columns));
      for (int n = 0; n < turns; ++n) f.get().turn();
      load.cancel();
      f.run_until([&] { return load.ended(); });
      std::fill(memory.begin(), memory.end(), std::uint8_t{0x5a});
      for (int n = 0; n < 8; ++n) f.get().turn();
      CHECK(all_are(memory, 0x5a));
    }
    f.run(weights.load_into(memory, "a", columns));
    CHECK(memory == part_of(a, 1, 1, {4096}, 1, 4));
  }
}

TEST_CASE("weights keep their files open, and no longer than they live") {
  const weight_folder folder;
  for (const char* name : {"1.safetensors", "2.safetensors"})
    folder.write(name, safetensors_of({made_tensor(name, "U8", 1, {3})}));
  reactor_fixture f(engine_kind::epoll);
  const std::size_t before = open_descriptors();
  {
    const weight_files weights = opened(f, folder.path());
    CHECK(open_descriptors() == before + 2);
  }
  CHECK(open_descriptors() == before);
  folder.write("3.safetensors", "no file of weights");
  CHECK(opening_refusal(folder.path()).starts_with(folder.at("3.safetensors")));
  CHECK(open_descriptors() == before);
}

TEST_CASE("a simulation loads weights, in an order of its seed") {
  const weight_folder folder;
  const written_tensor a = made_tensor("a", "F32", 4, {512, 128});
  const std::string path = folder.write("x", safetensors_of({a}));
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    simulation sim(seed);
    bool is_same = false;
    simulated_node node(sim, "worker");
    const auto load = [](std::string from, const written_tensor& as,
                         bool& same) -> task<void> {
      auto opening = weight_files::open(std::move(from));
      const weight_files weights = co_await std::move(opening);
      const auto columns = weight_slice::split(weights.at("a"), 1, 3, 4);
      auto loading = weights.load("a", columns);
      const tensor read = co_await std::move(loading);
      same = are_same(read, part_of(as, 4, 1, {128}, 3, 4));
    };
    node.spawn(load(path, a, is_same));
    REQUIRE(sim.run_until([&] { return node.has_ended(); }));
    CHECK(is_same);
  }
}

namespace {

/// What two members of a host have of the tensor "a" that one of them reads.
struct read_once {
  std::string path;
  bool is_cut = false;          ///< after it was opened
  dtype type = dtype::float32;  ///< of its memory for "a"; "b" is read behind it
  std::vector<std::uint8_t> next = {};
  bool has_next = false;
  bool has_bytes = false;
  std::string error = {};
};

task<void> join_and_load(runtime& on, memory_store& meets, rank_t own,
                         std::vector<std::uint8_t> wanted, read_once& mine) {
  const weight_files weights = co_await weight_files::open(mine.path);
  if (mine.is_cut) std::filesystem::resize_file(mine.path, 100);
  world_options options;
  options.name = "weights";
  options.rank = own;
  options.size = 2;
  world w(on, meets, options);
  co_await w;
  shared_pool pool(on.pools(), 2 << 20);
  tensor all({256, 1024}, mine.type, pool);
  try {
    co_await weights.load_once(w, all, "a");
    mine.has_bytes = are_same(all, wanted);
  } catch (const weights_error& e) {
    mine.error = e.what();
  } catch (const file_error& e) {
    mine.error = e.what();
  }
  if (const auto next = weights.find("b")) {
    tensor behind(next->shape, dtype::float32, pool);
    co_await weights.load_once(w, behind, "b");
    mine.has_next = are_same(behind, mine.next);
  }
  co_await w.leave();
}

void load_in_two(read_once& first, read_once& second,
                 const std::vector<std::uint8_t>& wanted) {
  memory_store store;
  const auto member = [&](rank_t rank, read_once& mine) {
    runtime rt;
    rt.run(join_and_load(rt, store, rank, wanted, mine));
  };
  std::jthread other([&] { member(1, second); });
  member(0, first);
}

}  // namespace

TEST_CASE(
    "disco A38: what all members need is read by one of a host, and the others get it") {
  const weight_folder folder;
  const written_tensor a = made_tensor("a", "F32", 4, {256, 1024}, 1);
  // Were it to read by itself, the second would have other bytes.
  const written_tensor other = made_tensor("a", "F32", 4, {256, 1024}, 2);
  read_once first{.path = folder.write("x", safetensors_of({a}))};
  read_once second{.path = folder.write("y", safetensors_of({other}))};
  load_in_two(first, second, a.bytes);
  CHECK(first.error.empty());
  CHECK(first.has_bytes);
  CHECK(second.error.empty());
  CHECK(second.has_bytes);
}

TEST_CASE("what the one cannot read that reads for a host is an error for the others") {
  const weight_folder folder;
  const written_tensor a = made_tensor("a", "F32", 4, {256, 1024});
  read_once first{.path = folder.write("x", safetensors_of({a})), .is_cut = true};
  read_once second{.path = folder.write("y", safetensors_of({a}))};
  load_in_two(first, second, a.bytes);
  CHECK(first.error.find(first.path) != std::string::npos);
  CHECK(second.error == "rank 0 could not read it: " + first.error);
}

TEST_CASE(
    "one that fails before it reads, or is told, keeps nothing from the next load") {
  const weight_folder folder;
  const written_tensor a = made_tensor("a", "F32", 4, {256, 1024}, 1);
  const written_tensor b = made_tensor("b", "F32", 4, {256, 1024}, 2);
  const std::string both = folder.write("x", safetensors_of({a, b}));
  SUBCASE("the one that reads has no such tensor") {
    read_once first{.path = folder.write("y", safetensors_of({b})), .next = b.bytes};
    read_once second{.path = both, .next = b.bytes};
    load_in_two(first, second, a.bytes);
    CHECK(first.error.find("there is no such tensor") != std::string::npos);
    CHECK(second.error == "rank 0 could not read it: " + first.error);
    CHECK(first.has_next);
    CHECK(second.has_next);
  }
  SUBCASE("the other has memory of another type") {
    read_once first{.path = both, .next = b.bytes};
    read_once second{.path = both, .type = dtype::int32, .next = b.bytes};
    load_in_two(first, second, a.bytes);
    CHECK(first.has_bytes);
    CHECK_FALSE(second.error.empty());
    CHECK(first.has_next);
    CHECK(second.has_next);
  }
}

TEST_SUITE_END();
