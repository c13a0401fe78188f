#include "observe/json_writer.hpp"

#include <doctest/doctest.h>

using namespace manyworlds;

TEST_SUITE_BEGIN("json_writer");

TEST_CASE("objects and arrays nest, with commas where they belong") {
  json_writer out;
  out.object().field("a", 1).key("b").array().value(true).null().object().end_object();
  out.end_array().field("c", "x").field("d", -2.5).end_object();
  CHECK(out.take() == R"({"a":1,"b":[true,null,{}],"c":"x","d":-2.500000})");
}

TEST_CASE("text is escaped, and what is no UTF-8 is replaced") {
  const auto written = [](std::string_view text) {
    json_writer out;
    out.value(text);
    return out.take();
  };
  CHECK(written("a\"b\\c") == R"("a\"b\\c")");
  CHECK(written("line\nend") == R"("line\u000aend")");
  CHECK(written("gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x8C\x8D") ==
        "\"gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x8C\x8D\"");
  CHECK(written("\xFFx") == R"("\ufffdx")");
  CHECK(written("cut \xE2\x82") == R"("cut \ufffd\ufffd")");
  CHECK(written(std::string_view("\0", 1)) == R"("\u0000")");
}

TEST_CASE("overlong forms, surrogates and what is beyond Unicode are no UTF-8") {
  for (const std::string_view bad :
       {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80", "\xF5", "\x80", ""}) {
    CHECK(utf8_length(bad) == 0);
  }
  CHECK(utf8_length("\xF4\x8F\xBF\xBF") == 4);
}

TEST_SUITE_END();
