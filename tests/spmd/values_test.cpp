// Values of remote functions: what is written is what is read, and what is damaged, or is
// something else, is an error that says so (disco A1 to A5, law 11).
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "manyworlds/mw.hpp"
#include "manyworlds/spmd/argument.hpp"

namespace tests_of_values {

enum class colour : std::uint8_t { red = 1, green = 7 };

struct sampling {
  float temperature = 0;
  int top_k = 0;
  friend bool operator==(const sampling&, const sampling&) = default;
};

struct url {
  std::string text;
};

}  // namespace tests_of_values

template <>
inline constexpr bool mw::is_plain_record<tests_of_values::sampling> = true;

template <>
struct mw::argument<tests_of_values::url> {
  static constexpr mw::value_code code{"url"};
  static void write(mw::value_writer& out, const tests_of_values::url& u) {
    out.text(u.text);
  }
  static tests_of_values::url read(mw::value_reader& in) {
    return {std::string(in.text())};
  }
};

namespace tests_of_values {

namespace {

/// A message as a worker receives it: the values, and behind them the data beside them,
/// each part at a multiple of 64.
struct received {
  explicit received(const mw::value_writer& out)
      : values(out.written().begin(), out.written().end()) {
    std::size_t size = 0;
    for (const auto& part : out.beside())
      size = (size + 63) / 64 * 64 + part.size_bytes();
    block = std::make_shared<mw::tensor>(mw::shape(static_cast<std::int64_t>(size)),
                                         mw::dtype::uint8);
    std::size_t at = 0;
    for (const auto& part : out.beside()) {
      at = (at + 63) / 64 * 64;
      std::memcpy(static_cast<std::byte*>(block->data()) + at, part.data(),
                  part.size_bytes());
      at += part.size_bytes();
    }
  }
  [[nodiscard]] mw::value_reader reader() const {
    return mw::value_reader(
        values, {static_cast<std::byte*>(block->data()), block->size_bytes()}, block);
  }

  std::vector<std::byte> values;
  std::shared_ptr<mw::tensor> block;
};

template <class T>
T there_and_back(const T& value) {
  mw::value_writer out;
  mw::argument<T>::write(out, value);
  const received message(out);
  mw::value_reader in = message.reader();
  T read = mw::argument<T>::read(in);
  CHECK(in.is_at_end());
  return read;
}

/// Says what reading `Wanted` in place of what was written gives.
template <class Wanted, class Written>
std::string refusal(const Written& value) {
  mw::value_writer out;
  mw::argument<Written>::write(out, value);
  const received message(out);
  mw::value_reader in = message.reader();
  try {
    static_cast<void>(mw::argument<Wanted>::read(in));
  } catch (const mw::value_error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_SUITE_BEGIN("values");

static_assert(mw::remote_value<int> && mw::remote_value<std::string> &&
              mw::remote_value<mw::tensor> && mw::remote_value<sampling> &&
              mw::remote_value<std::tuple<int, std::optional<std::string>>>);
static_assert(!mw::remote_value<url*> && !mw::remote_value<std::vector<url*>>);
static_assert(mw::argument<long>::code == mw::argument<long long>::code);
static_assert(mw::argument<int>::code != mw::argument<unsigned>::code);
static_assert(mw::argument<std::vector<int>>::code != mw::argument<int>::code);
static_assert(mw::argument<std::string>::code == mw::argument<std::string_view>::code);

TEST_CASE_TEMPLATE("an integer of any size is what it was, at its limits too", T,
                   std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t,
                   std::uint32_t, std::int64_t, std::uint64_t) {
  using limits = std::numeric_limits<T>;
  for (const T value : {limits::min(), T{0}, T{1}, limits::max()})
    CHECK(there_and_back(value) == value);
}

TEST_CASE("values of every kind are what they were") {
  CHECK(there_and_back(true));
  CHECK(there_and_back(0.1F) == 0.1F);
  CHECK(there_and_back(std::numeric_limits<double>::denorm_min()) ==
        std::numeric_limits<double>::denorm_min());
  CHECK(there_and_back(colour::green) == colour::green);
  CHECK(there_and_back(std::string("hello\0world", 11)).size() == 11);
  CHECK(there_and_back(mw::dtype::bfloat16) == mw::dtype::bfloat16);
  CHECK(there_and_back(mw::shape(1, 2, 3)) == mw::shape(1, 2, 3));
  CHECK(there_and_back(mw::memory_place{3}).device == 3);
  CHECK(there_and_back(sampling{.temperature = 0.5F, .top_k = 4}).top_k == 4);
  CHECK(there_and_back(url{"a/b"}).text == "a/b");
  CHECK(there_and_back(std::optional<int>(4)) == 4);
  CHECK(there_and_back(std::optional<int>()) == std::nullopt);
  const std::vector<std::string> texts{"", "one", std::string(9000, 'x')};
  CHECK(there_and_back(texts) == texts);
  const std::vector<bool> flags{true, false, true};
  CHECK(there_and_back(flags) == flags);
  const std::array<std::uint16_t, 3> three{1, 2, 65535};
  CHECK(there_and_back(three) == three);
  const std::tuple<int, std::string, std::pair<bool, double>> mixed{-1, "x", {true, 2.5}};
  CHECK(there_and_back(mixed) == mixed);
}

TEST_CASE("bytes and elements of any number are what they were") {
  for (const std::size_t count : {0U, 1U, 7U, 4096U, 4097U, 1'048'576U}) {
    CAPTURE(count);
    std::vector<std::byte> raw(count);
    std::vector<double> numbers(count);
    for (std::size_t i = 0; i < count; ++i) {
      raw[i] = static_cast<std::byte>(i);
      numbers[i] = static_cast<double>(i) / 3;
    }
    CHECK(there_and_back(raw) == raw);
    CHECK(there_and_back(numbers) == numbers);
    // Behind a value of odd size they are aligned all the same.
    mw::value_writer out;
    out.boolean(true);
    mw::argument<std::span<const double>>::write(out, numbers);
    const received message(out);
    mw::value_reader in = message.reader();
    CHECK(in.boolean());
    const auto seen = mw::argument<std::span<const double>>::read(in);
    CHECK(std::equal(seen.begin(), seen.end(), numbers.begin(), numbers.end()));
  }
}

TEST_CASE("what is large is not copied by the writer, and a tensor not by the reader") {
  std::vector<float> large(100'000, 2.5F);
  const mw::tensor x = mw::tensor::copy_of(large, {100, 1000});
  mw::value_writer out;
  mw::argument<mw::tensor>::write(out, x);
  mw::argument<std::vector<float>>::write(out, large);
  REQUIRE(out.beside().size() == 2);
  CHECK(out.beside()[0].data() == x.data());
  CHECK(out.beside()[1].data() == large.data());
  CHECK(out.written().size() < 100);
  mw::tensor y;
  {
    const received message(out);
    mw::value_reader in = message.reader();
    y = mw::argument<mw::tensor>::read(in);
    CHECK(y.data() == message.block->data());
    CHECK(mw::argument<std::vector<float>>::read(in) == large);
  }
  // It keeps what was received.
  CHECK(y.shape() == mw::shape(100, 1000));
  CHECK(y.as<float>()[99'999] == 2.5F);
}

TEST_CASE("a value of another kind is refused by what it is and what is wanted") {
  CHECK(refusal<std::string>(4) == "an integer, where a text is wanted");
  CHECK(refusal<int>(std::string("x")) == "a text, where an integer is wanted");
  CHECK(refusal<bool>(1) == "an integer, where a bool is wanted");
  CHECK(refusal<mw::tensor>(1.5) == "a floating-point number, where a tensor is wanted");
  CHECK(refusal<std::uint8_t>(256) ==
        "a number that is out of the range of an unsigned integer");
  CHECK(refusal<unsigned>(-1) ==
        "a number that is out of the range of an unsigned integer");
  CHECK(refusal<std::int8_t>(-129) == "a number that is out of the range of an integer");
  CHECK(refusal<std::int64_t>(std::numeric_limits<std::uint64_t>::max()) ==
        "an unsigned integer, where an integer is wanted");
  CHECK(refusal<std::vector<int>>(std::vector<float>{1}) ==
        "elements of float32, where int32 is wanted");
  CHECK(refusal<std::array<bool, 2>>(std::vector<bool>{true}) ==
        "a list of 1, where 2 are wanted");
  CHECK(refusal<url>(sampling()) == "a record, where a text is wanted");
  CHECK(refusal<double>(1) == "");  // an integer is a number
  CHECK(refusal<double>((std::int64_t{1} << 53) + 1) != "");
}

TEST_CASE(
    "disco A64: a message that is cut anywhere, or has any wrong byte, is an error or a "
    "value") {
  mw::value_writer out;
  const mw::tensor x = mw::tensor::zeros({40, 40}, mw::dtype::float32);
  using all = std::tuple<std::vector<std::string>, std::vector<double>,
                         std::optional<mw::shape>, mw::dtype, std::vector<std::byte>>;
  mw::argument<all>::write(
      out, {{"a", "b"}, {1, 2}, mw::shape(2, 3), mw::dtype::int8, {std::byte{1}}});
  mw::argument<mw::tensor>::write(out, x);
  const received whole(out);
  const auto read = [](received& message) {
    mw::value_reader in = message.reader();
    try {
      static_cast<void>(mw::argument<all>::read(in));
      static_cast<void>(mw::argument<mw::tensor>::read(in));
      return true;
    } catch (const mw::value_error&) {
      return false;
    }
  };
  received copy = whole;
  REQUIRE(read(copy));
  for (std::size_t size = 0; size < whole.values.size(); ++size) {
    copy = whole;
    copy.values.resize(size);
    CHECK_FALSE(read(copy));
  }
  // Lengths of 2^40 and kinds that are not there among them. Nothing may be read outside
  // of what has come, which the sanitizers watch, and nothing large may be allocated.
  std::mt19937_64 random(7);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    copy = whole;
    for (std::uint64_t changes = 1 + random() % 3; changes > 0; --changes)
      copy.values[random() % copy.values.size()] = static_cast<std::byte>(random());
    if (!read(copy)) ++refused;
  }
  CHECK(refused > 1000);
  copy = whole;
  copy.block = std::make_shared<mw::tensor>(mw::shape(100), mw::dtype::uint8);
  CHECK_FALSE(read(copy));
}

TEST_CASE("only what lies in host memory is a value") {
  float elements[4];
  auto* const stream = reinterpret_cast<CUstream_st*>(std::uintptr_t{16});
  const mw::tensor x({4}, mw::device_view(elements, 4, stream), 0, nullptr);
  mw::value_writer out;
  CHECK_THROWS_AS(out.tensor(x), std::invalid_argument);
  CHECK(out.written().empty());
}

TEST_SUITE_END();

}  // namespace tests_of_values
