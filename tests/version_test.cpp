#include "manyworlds/version.hpp"

#include <doctest/doctest.h>

TEST_SUITE_BEGIN("version");

TEST_CASE("the linked library is the one the headers describe") {
  CHECK(manyworlds::linked_version() == manyworlds::header_version);
}

TEST_SUITE_END();
