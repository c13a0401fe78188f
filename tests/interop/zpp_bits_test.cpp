#include "manyworlds/interop/zpp_bits.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include "manyworlds/mw.hpp"
#include "manyworlds/spmd.hpp"

namespace {

struct zpp_request {
  std::string prompt;
  std::map<std::string, float> biases;
  std::vector<std::uint32_t> tokens;
  bool operator==(const zpp_request&) const = default;
};

}  // namespace

template <>
inline constexpr std::string_view mw::zpp_bits_name<zpp_request> = "request/1";

namespace {

constexpr mw::remote_function<zpp_request(zpp_request)> answer_zpp{"answer_zpp",
                                                                   mw::alone};
static_assert(mw::remote_value<zpp_request>);

mw::value_reader reader_of(const mw::value_writer& written) {
  static std::vector<std::byte> kept;
  const auto bytes = written.written();
  kept.assign(bytes.begin(), bytes.end());
  return mw::value_reader(kept);
}

TEST_CASE("a value that zpp::bits serializes comes as it was") {
  const zpp_request asked{"why?", {{"yes", 1.5F}, {"no", -2}}, {1, 2, 70'000}};
  mw::value_writer out;
  mw::argument<zpp_request>::write(out, asked);
  mw::value_reader in = reader_of(out);
  CHECK(mw::argument<zpp_request>::read(in) == asked);
}

TEST_CASE("what zpp::bits has not written is refused, and nothing is allocated for it") {
  mw::value_writer whole;
  mw::argument<zpp_request>::write(whole, {"a prompt", {}, {1, 2, 3}});
  mw::value_reader in = reader_of(whole);
  const std::string good(in.text());
  for (std::size_t size = 0; size < good.size(); ++size) {
    mw::value_writer cut;
    cut.text(std::string_view(good).substr(0, size));
    mw::value_reader some = reader_of(cut);
    CHECK_THROWS_AS((void)mw::argument<zpp_request>::read(some), mw::value_error);
  }
  mw::value_writer longer;
  longer.text(good + '\0');
  mw::value_reader too_long = reader_of(longer);
  CHECK_THROWS_WITH_AS((void)mw::argument<zpp_request>::read(too_long),
                       "no request/1 as zpp::bits writes it: there is more behind it",
                       mw::value_error);
  // A text that claims 4 GiB.
  mw::value_writer huge;
  huge.text(std::string(8, '\xff'));
  mw::value_reader claims = reader_of(huge);
  CHECK_THROWS_WITH_AS((void)mw::argument<zpp_request>::read(claims),
                       "no request/1 as zpp::bits writes it: Message too long",
                       mw::value_error);
}

TEST_CASE("a value of 12 MiB travels by zpp::bits, one of more than 16 does not") {
  mw::value_writer out;
  mw::argument<zpp_request>::write(out, {std::string(12 << 20, 'x'), {}, {}});
  mw::value_reader in = reader_of(out);
  CHECK(mw::argument<zpp_request>::read(in).prompt.size() == 12 << 20);
  mw::value_writer more;
  CHECK_THROWS_AS(
      mw::argument<zpp_request>::write(more, {std::string(17 << 20, 'x'), {}, {}}),
      mw::value_error);
}

TEST_CASE("a remote function takes and gives what zpp::bits serializes") {
  const mw::function_table functions{{answer_zpp, [](zpp_request x) {
                                        x.prompt += " because";
                                        x.biases["maybe"] = 0;
                                        return x;
                                      }}};
  mw::runtime rt;
  const auto ask = [&]() -> mw::task<void> {
    const mw::threads two(2, functions);
    mw::session s = co_await mw::session::start(rt, two);
    const zpp_request asked{"why?", {{"yes", 1.0F}}, {7}};
    const zpp_request got = co_await s.call(answer_zpp, asked).from(1);
    CHECK(got.prompt == "why? because");
    CHECK(got.biases.size() == 2);
    CHECK(got.tokens == asked.tokens);
    co_await s.close();
  };
  rt.run(ask());
}

}  // namespace
