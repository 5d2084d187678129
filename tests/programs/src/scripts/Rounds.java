import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Random;

/**
 * Rounds work|check LAST: round N rewrites three files, one after the other, with N, and makes each durable in its way; then it is
 * acknowledged. What is there afterwards has to be a whole round in each file, in the order in which they are written.
 */
class Rounds {
    static final int LONGS = 40_000;
    static final Path RANDOM = Path.of("random.dat"), CHANNEL = Path.of("channel.dat"), MAP = Path.of("map.dat");

    /** As many longs as a file has in round n: it shrinks and grows. */
    static int longs(long n, Path file) {
        return file == MAP ? LONGS : LONGS / 2 + (int) (n * 7919 % (LONGS / 2));
    }

    static long value(long n, int index) {
        return n * 1_000_003 + index;
    }

    /** The round that a file holds; all of it has to be of one. */
    static long round(Path file) throws Exception {
        if (!Files.exists(file) || Files.size(file) == 0) {
            return 0;
        }
        ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(file));
        long n = bytes.getLong(0) / 1_000_003;
        // A mapping makes its file longer before anything is stored.
        if (n == 0 && file == MAP) {
            for (int i = 0; i < bytes.capacity(); i++) {
                if (bytes.get(i) != 0) throw new Error(file + ": byte " + i + " is not 0");
            }
            return 0;
        }
        if (bytes.capacity() != 8 * longs(n, file)) {
            throw new Error(file + ": " + bytes.capacity() + " bytes in round " + n + ", not " + 8 * longs(n, file));
        }
        for (int i = 0; i < longs(n, file); i++) {
            if (bytes.getLong(8 * i) != value(n, i)) {
                throw new Error(file + ": long " + i + " is of another round than " + n + ": " + bytes.getLong(8 * i));
            }
        }
        return n;
    }

    static ByteBuffer content(long n, Path file) {
        ByteBuffer bytes = ByteBuffer.allocate(8 * longs(n, file));
        for (int i = 0; i < longs(n, file); i++) bytes.putLong(8 * i, value(n, i));
        return bytes;
    }

    static void check(long last) throws Exception {
        long random = round(RANDOM), channel = round(CHANNEL), map = round(MAP);
        boolean inOrder = random >= channel && channel >= map && map >= last && random <= map + 1;
        if (!inOrder) {
            throw new Error("round " + last + " was acknowledged; the files hold " + random + ", " + channel + ", " + map);
        }
    }

    public static void main(String[] words) throws Exception {
        if (words[0].equals("check")) {
            check(Long.parseLong(words[1]));
            return;
        }
        // After a kill in the middle of a round that round is made once more, or files that are behind would fall further behind.
        long n = Math.min(round(RANDOM), Math.min(round(CHANNEL), round(MAP)));
        Random dice = new Random(n);
        try (RandomAccessFile random = new RandomAccessFile(RANDOM.toFile(), "rw");
                FileChannel channel = FileChannel.open(CHANNEL, StandardOpenOption.CREATE, StandardOpenOption.READ,
                        StandardOpenOption.WRITE);
                FileChannel mapped = FileChannel.open(MAP, StandardOpenOption.CREATE, StandardOpenOption.READ,
                        StandardOpenOption.WRITE)) {
            MappedByteBuffer map = mapped.map(FileChannel.MapMode.READ_WRITE, 0, 8L * LONGS);
            while (true) {
                n++;
                byte[] bytes = content(n, RANDOM).array();
                int half = dice.nextInt(bytes.length);
                random.setLength(bytes.length);
                random.seek(half);
                random.write(bytes, half, bytes.length - half);
                random.seek(0);
                random.write(bytes, 0, half);
                random.getFD().sync();

                ByteBuffer all = content(n, CHANNEL);
                half = dice.nextInt(all.capacity());
                ByteBuffer[] parts = {all.slice(0, half), all.slice(half, all.capacity() - half)};
                channel.truncate(all.capacity()).position(0);
                while (parts[1].hasRemaining()) channel.write(parts);
                for (int at = 0; at < 64; at += 8) channel.write(all.slice(at, 8), at);
                channel.force(dice.nextBoolean());

                for (int i = 0; i < LONGS; i++) map.putLong(8 * i, value(n, i));
                map.force();
                System.out.println("ack " + n);
            }
        }
    }
}
