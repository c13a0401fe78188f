#include "formation.hpp"

#include "allocation.hpp"
#include "complaint.hpp"
#include "settings.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace nccl_emulation {

namespace {

constexpr int default_ctas = 32;
// src/init.cc, NCCL_CONFIG_DEFAULT of cgaClusterSize from sm90 on.
constexpr int default_cluster = 4;

struct field {
  const char* name;
  int value;
  int least;
  int most;
};

ncclResult_t check(const ncclConfig_t& config) {
  constexpr int many = 0x7fffffff;
  const field fields[] = {
      {"blocking", config.blocking, 0, 1},
      {"cgaClusterSize", config.cgaClusterSize, 0, many},
      {"minCTAs", config.minCTAs, 1, many},
      {"maxCTAs", config.maxCTAs, 1, many},
      {"splitShare", config.splitShare, 0, 1},
      {"collnetEnable", config.collnetEnable, 0, 1},
      {"CTAPolicy", config.CTAPolicy, NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_ZERO},
      {"shrinkShare", config.shrinkShare, 0, 1},
      {"nvlsCTAs", config.nvlsCTAs, 1, many},
      {"nChannelsPerNetPeer", config.nChannelsPerNetPeer, 1, 64},
      {"nvlinkCentricSched", config.nvlinkCentricSched, 0, 1},
  };
  for (const auto& f : fields) {
    if (f.value == NCCL_CONFIG_UNDEF_INT) continue;
    if (f.value < f.least || f.value > f.most)
      return complain(ncclInvalidArgument,
                      std::string{"Invalid config attribute value "} + f.name);
  }
  // As src/init.cc compares them: a least without a most is refused too.
  if (config.minCTAs > config.maxCTAs)
    return complain(ncclInvalidArgument, "Invalid config min/max channels");
  return ncclSuccess;
}

// An older, shorter structure is accepted: what it lacks is undefined (src/init.cc
// parseCommConfig).
ncclResult_t read(const ncclConfig_t* given, ncclConfig_t& config) {
  if (given == nullptr) return ncclSuccess;
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  std::memcpy(static_cast<void*>(&config), given, std::min(size, known_config));
  if (config.magic != 0xcafebeef)
    return complain(ncclInvalidArgument,
                    "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
  if (config.version < NCCL_VERSION(2, 14, 0)) config.blocking = NCCL_CONFIG_UNDEF_INT;
  if (config.version < NCCL_VERSION(2, 17, 0))
    config.minCTAs = config.maxCTAs = NCCL_CONFIG_UNDEF_INT;
  if (config.version < NCCL_VERSION(2, 27, 0)) config.shrinkShare = NCCL_CONFIG_UNDEF_INT;
  return check(config);
}

int either(int given, int otherwise) {
  return given == NCCL_CONFIG_UNDEF_INT ? otherwise : given;
}

// src/init.cc initTransportsRank: every other rank of this host with this rank's device.
bool shares_device(const communicator& c) {
  const auto& own = c.members[static_cast<std::size_t>(c.rank)];
  return std::any_of(c.members.begin(), c.members.end(), [&](const member_card& other) {
    if (&other == &own || other.host != own.host) return false;
    if (std::strncmp(other.bus, own.bus, sizeof own.bus) != 0) return false;
    return !chosen().shared_devices || other.process == own.process;
  });
}

// src/init.cc, initTransportsRank: no rank may launch before all have allocated, "That
// could cause a deadlock".
bool await_all(const communicator& c, interrupts cut) {
  char word = 0;
  for (const auto& line : c.lines)
    if (line.out && write_all(line.out.get(), &word, 1, cut) == outcome::interrupted)
      return false;
  for (const auto& line : c.lines) {
    if (!line.in) continue;
    auto read = read_all(line.in.get(), &word, 1, cut);
    if (read == outcome::dead) read = wait_for_abort(cut);
    if (read == outcome::interrupted) return false;
  }
  return true;
}

ncclResult_t cut_short() {
  return complain(ncclInternalError, "aborted while the communicator was being made");
}

}  // namespace

shared_communicator configured(const ncclConfig_t* given, int device,
                               ncclResult_t& refusal) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  refusal = read(given, config);
  if (refusal != ncclSuccess) return {};
  auto c = std::make_shared<communicator>();
  c->device = device;
  c->blocking = either(config.blocking, 1);
  c->max_ctas = either(config.maxCTAs, default_ctas);
  c->cluster = either(config.cgaClusterSize, default_cluster);
  c->split_share = either(config.splitShare, 0);
  c->shrink_share = either(config.shrinkShare, 0);
  c->config_name = config.commName;
  return c;
}

shared_communicator configured_like(const communicator& parent) {
  auto c = std::make_shared<communicator>();
  c->device = parent.device;
  c->blocking = parent.blocking;
  c->max_ctas = parent.max_ctas;
  c->cluster = parent.cluster;
  c->split_share = parent.split_share;
  c->shrink_share = parent.shrink_share;
  c->config_name = parent.config_name;
  return c;
}

doorway doorway::open() {
  doorway door;
  door.name = fresh_name("line");
  door.listener = listen_at(door.name);
  return door;
}

member_card doorway::on(member_card card) const {
  std::snprintf(card.listener, sizeof card.listener, "%s", name.c_str());
  return card;
}

std::string derive(const communicator& c, const std::string& purpose) {
  char text[40];
  std::snprintf(text, sizeof text, "emulated-nccl/%016zx",
                std::hash<std::string>{}(c.name + '/' + purpose));
  return text;
}

ncclResult_t form(communicator& c, const doorway& door, std::vector<member_card> members,
                  interrupts cut) {
  c.members = std::move(members);
  c.count = static_cast<int>(c.members.size());
  if (shares_device(c))
    return complain(ncclInvalidUsage, "Duplicate GPU detected: two ranks on one device");
  c.lines.resize(c.members.size());
  for (int r = 0; r < c.count; ++r) {
    if (r == c.rank) continue;
    auto& line = c.lines[static_cast<std::size_t>(r)];
    const auto& other = c.members[static_cast<std::size_t>(r)];
    while (!(line.out = connect_to(other.listener)))
      if (sleep_for(2, cut) == outcome::interrupted) return cut_short();
    if (write_all(line.out.get(), &c.rank, sizeof c.rank, cut) == outcome::interrupted)
      return cut_short();
  }
  for (int arrived = 1; arrived < c.count;) {
    auto made = accept_from(door.listener, cut);
    if (!made) return cut_short();
    int from = -1;
    if (read_all(made.get(), &from, sizeof from, cut) != outcome::done) continue;
    c.lines[static_cast<std::size_t>(from)].in = std::move(made);
    ++arrived;
  }
  if (const auto failure = allocate(c)) return failure;
  if (chosen().syncs_implicitly && !await_all(c, cut)) return cut_short();
  return cut.raised() ? cut_short() : ncclSuccess;
}

ncclResult_t join(const shared_communicator& c, const std::vector<std::string>& roots,
                  interrupts cut) {
  if (sleep_for(chosen().create_ms, cut) == outcome::interrupted) return cut_short();
  if (const auto failure = load_kernels(*c)) return failure;
  const auto door = doorway::open();
  const auto own = door.on(c->card());
  std::vector<member_card> members;
  c->name = "";
  for (const auto& root : roots) {
    auto cards = check_in(root, c->rank, c->count, own, cut);
    if (!cards) return cut_short();
    members = std::move(*cards);
    c->name += root + ' ';
  }
  const auto result = form(*c, door, std::move(members), cut);
  if (result != ncclSuccess) return result;
  c->initialised = true;
  add_sibling(c);
  return ncclSuccess;
}

}  // namespace nccl_emulation
