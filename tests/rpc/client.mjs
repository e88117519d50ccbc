// A client in JavaScript that knows the specifications of MessagePack and MessagePack-RPC, and nothing of this project:
//   node client.mjs SOCKET METHOD JSON     prints the answer as JSON; fails with the error's text.
import net from "node:net";

function encode(value) {
  if (value === null) return Buffer.from([0xc0]);
  if (typeof value === "boolean") return Buffer.from([value ? 0xc3 : 0xc2]);
  if (Number.isInteger(value)) {
    const data = Buffer.alloc(9, 0xd3);
    data.writeBigInt64BE(BigInt(value), 1);
    return data;
  }
  if (typeof value === "string") {
    const text = Buffer.from(value);
    return Buffer.concat([head(0xdb, text.length), text]);
  }
  if (Array.isArray(value)) return Buffer.concat([head(0xdd, value.length), ...value.map(encode)]);
  const entries = Object.entries(value);
  return Buffer.concat([head(0xdf, entries.length), ...entries.flat().map(encode)]);
}

function head(kind, length) {
  const data = Buffer.alloc(5, kind);
  data.writeUInt32BE(length, 1);
  return data;
}

// Reads one value; throws a RangeError where the bytes end before it does.
function decode(data, at = { place: 0 }) {
  const number = (size, read) => {
    const found = data[read](at.place);
    at.place += size;
    return typeof found === "bigint" ? Number(found) : found;
  };
  const bytes = (length) => {
    if (at.place + length > data.length) throw new RangeError();
    return data.subarray(at.place, (at.place += length));
  };
  const list = (length) => Array.from({ length }, () => decode(data, at));
  const map = (length) => Object.fromEntries(Array.from({ length }, () => [decode(data, at), decode(data, at)]));
  const unsigned = [["readUInt8", 1], ["readUInt16BE", 2], ["readUInt32BE", 4], ["readBigUInt64BE", 8]];
  const signed = [["readInt8", 1], ["readInt16BE", 2], ["readInt32BE", 4], ["readBigInt64BE", 8]];
  const read = ([name, size]) => number(size, name);
  const kind = number(1, "readUInt8");
  if (kind < 0x80) return kind;
  if (kind < 0x90) return map(kind & 15);
  if (kind < 0xa0) return list(kind & 15);
  if (kind < 0xc0) return bytes(kind & 31).toString();
  if (kind >= 0xe0) return kind - 256;
  if (kind >= 0xcc && kind <= 0xcf) return read(unsigned[kind - 0xcc]);
  if (kind >= 0xd0 && kind <= 0xd3) return read(signed[kind - 0xd0]);
  if (kind >= 0xd9 && kind <= 0xdb) return bytes(read(unsigned[kind - 0xd9])).toString();
  if (kind >= 0xc4 && kind <= 0xc6) return bytes(read(unsigned[kind - 0xc4])).toString("base64");
  if (kind === 0xdc || kind === 0xdd) return list(read(unsigned[kind - 0xdb]));
  if (kind === 0xde || kind === 0xdf) return map(read(unsigned[kind - 0xdd]));
  if (kind === 0xca) return number(4, "readFloatBE");
  if (kind === 0xcb) return number(8, "readDoubleBE");
  return { 0xc0: null, 0xc2: false, 0xc3: true }[kind];
}

const [path, method, params] = process.argv.slice(2);
const socket = net.connect(path, () => socket.write(encode([0, 1, method, [JSON.parse(params)]])));
let received = Buffer.alloc(0);
socket.on("data", (data) => {
  received = Buffer.concat([received, data]);
  let message;
  try {
    message = decode(received);
  } catch (error) {
    if (error instanceof RangeError) return;
    throw error;
  }
  const [kind, ident, error, result] = message;
  if (kind !== 1 || ident !== 1 || error !== null) {
    console.error(JSON.stringify(error));
    process.exit(1);
  }
  console.log(JSON.stringify(result));
  socket.end();
});
