#include "kvdiv/io/mapped_file.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <string>
#include <utility>
#include <vector>

#include "io/io_support.h"

namespace kvdiv::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, ShowsTheBytesAndThePath) {
  const TempDir dir;
  write_bytes(dir / "a", std::string("x\0y", 3));
  const MappedFile file(dir / "a");
  EXPECT_EQ(text_of(file), std::string("x\0y", 3));
  EXPECT_EQ(file.path(), dir / "a");
}

TEST(MappedFile, AnEmptyFileHasNoBytes) {
  const TempDir dir;
  write_bytes(dir / "a", "");
  const MappedFile file(dir / "a");
  EXPECT_TRUE(file.bytes().empty());
  file.drop(0, 100);
}

TEST(MappedFile, MovingKeepsTheBytesWhereTheyAre) {
  const TempDir dir;
  write_bytes(dir / "a", "first");
  write_bytes(dir / "b", "second");
  MappedFile a(dir / "a");
  const std::byte* const data = a.bytes().data();
  MappedFile moved(std::move(a));
  EXPECT_EQ(moved.bytes().data(), data);
  moved = MappedFile(dir / "b");
  EXPECT_EQ(text_of(moved), "second");
}

TEST(MappedFile, RefusesWhatIsNoRegularFileEachInItsWords) {
  const TempDir dir;
  EXPECT_THAT(refusal([&] { MappedFile(dir / "absent"); }), HasSubstr("absent: no such file"));
  EXPECT_THAT(refusal([&] { MappedFile(dir.path()); }), HasSubstr("is a directory"));
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal([&] { MappedFile(dir / "pipe"); }), HasSubstr("is not a regular file"));  // and does not wait
  fs::create_symlink("../blobs/0123", dir / "link");
  EXPECT_THAT(refusal([&] { MappedFile(dir / "link"); }),
              HasSubstr("is a link to ../blobs/0123, which does not exist"));
  write_bytes(dir / "file", "x");
  EXPECT_THAT(refusal([&] { MappedFile(dir / "file" / "below"); }), HasSubstr("Not a directory"));
}

/// Resident pages among those of the mapping.
std::size_t resident_pages(const MappedFile& file) {
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::size_t n = 0;
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  const std::string start = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(file.bytes().data()));
  bool inside = false;
  while (std::getline(smaps, line)) {
    if (line.find('-') != std::string::npos && line.find(' ') > line.find('-')) inside = line.starts_with(start);
    if (inside && line.starts_with("Rss:")) n = std::stoul(line.substr(4)) * 1024 / page;
  }
  return n;
}

TEST(MappedFile, DropGivesBackWholePagesAndTheyCanBeReadAgain) {
  const TempDir dir;
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::string bytes(64 * page + 10, 'a');
  bytes[40 * page] = 'b';
  write_bytes(dir / "a", bytes);
  const MappedFile file(dir / "a");
  EXPECT_EQ(text_of(file), bytes);
  EXPECT_EQ(resident_pages(file), 65u);
  file.drop(1, page);  // no whole page inside
  EXPECT_EQ(resident_pages(file), 65u);
  file.drop(page - 1, 32 * page + 1);  // pages 1 to 32
  EXPECT_EQ(resident_pages(file), 33u);
  file.drop(33 * page, ~std::size_t{0});  // to the end, the partial page too
  EXPECT_EQ(resident_pages(file), 1u);
  file.drop(1000 * page, 5);
  EXPECT_EQ(text_of(file), bytes);
}

}  // namespace
}  // namespace kvdiv::test
