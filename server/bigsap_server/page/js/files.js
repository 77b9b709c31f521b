/**
 * Tables of numbers out of `.npy` files and CSV, read in the browser.
 *
 * A table is {shape: [rows, columns], dtype, vector, itemsize, read(start, stop)}: `read` gives the
 * rows start to stop as little-endian bytes in C order. `vector`: one-dimensional in its file.
 */

/** Numbers the service scans or converts, by numpy's code. */
const DTYPES = {
  f8: ["float64", 8], f4: ["float32", 4], f2: ["float16", 2],
  i8: ["int64", 8], i4: ["int32", 4], i2: ["int16", 2], i1: ["int8", 1],
  u8: ["uint64", 8], u4: ["uint32", 4], u2: ["uint16", 2], u1: ["uint8", 1],
};
const MAGIC = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59];
const WHOLE = 512 * 2 ** 20; // a file in Fortran order has to be held as a whole

/** A file the page cannot use, said in a sentence for the user. */
export class FileProblem extends Error {}

/** The table in `file`: npy by its first bytes, CSV otherwise. */
export async function readFile(file) {
  if (file.size === 0) throw new FileProblem(`${file.name} is empty.`);
  const start = new Uint8Array(await file.slice(0, 12).arrayBuffer());
  if (MAGIC.every((byte, k) => start[k] === byte)) return readNpy(file, start);
  if (start[0] === 0x50 && start[1] === 0x4b) {
    throw new FileProblem(`${file.name} is an archive (.npz?). Save a single array with numpy.save.`);
  }
  return readCsv(file, file.name);
}

async function readNpy(file, start) {
  const wide = start[6] >= 2;
  const view = new DataView(start.buffer);
  const length = wide ? view.getUint32(8, true) : view.getUint16(8, true);
  const offset = (wide ? 12 : 10) + length;
  if (length > 65_536) throw new FileProblem(`${file.name}: its header is too long for an array.`);
  const header = new TextDecoder("latin1").decode(
    await file.slice(wide ? 12 : 10, offset).arrayBuffer(),
  );
  const descr = /'descr':\s*'([^']*)'/.exec(header)?.[1];
  const order = /'fortran_order':\s*(True|False)/.exec(header)?.[1];
  const dims = /'shape':\s*\(([^)]*)\)/.exec(header)?.[1];
  if (order === undefined || dims === undefined) {
    throw new FileProblem(`${file.name}: its header cannot be read.`);
  }
  const [dtype, itemsize] = (descr && DTYPES[descr.slice(1)]) ?? [];
  if (!dtype) {
    const kind = descr ? `of type ${descr}` : "of records";
    throw new FileProblem(`${file.name} is ${kind}; numbers are needed, such as float64 or int32.`);
  }
  const shape = dims.split(",").filter((part) => part.trim()).map(Number);
  if (shape.length < 1 || shape.length > 2) {
    throw new FileProblem(
      `${file.name} has ${shape.length} dimensions; a table has two (or one, for single numbers).`,
    );
  }
  const vector = shape.length === 1;
  const [rows, columns] = [shape[0], shape[1] ?? 1];
  if (file.size - offset < rows * columns * itemsize) {
    throw new FileProblem(`${file.name} is cut off: its header promises more numbers than it holds.`);
  }
  const swap = descr[0] === ">" && itemsize > 1;
  const table = { shape: [rows, columns], vector, dtype, itemsize };
  const ordered = (bytes) => (swap ? swapped(bytes, itemsize) : bytes);
  if (order === "False" || vector || rows < 2 || columns < 2) {
    const row = columns * itemsize;
    table.read = async (first, last) =>
      ordered(new Uint8Array(await file.slice(offset + first * row, offset + last * row).arrayBuffer()));
    return table;
  }
  if (file.size > WHOLE) {
    throw new FileProblem(
      `${file.name} is stored column by column (Fortran order) and too large to turn here. ` +
        "Save numpy.ascontiguousarray(a) instead.",
    );
  }
  const whole = ordered(new Uint8Array(await file.slice(offset).arrayBuffer()));
  table.read = async (first, last) => turned(whole, rows, columns, itemsize, first, last);
  return table;
}

function swapped(bytes, itemsize) {
  for (let item = 0; item < bytes.length; item += itemsize) {
    bytes.subarray(item, item + itemsize).reverse();
  }
  return bytes;
}

function turned(whole, rows, columns, itemsize, first, last) {
  const out = new Uint8Array((last - first) * columns * itemsize);
  let to = 0;
  for (let i = first; i < last; i += 1) {
    for (let j = 0; j < columns; j += 1) {
      const from = (j * rows + i) * itemsize;
      for (let byte = 0; byte < itemsize; byte += 1) out[to + byte] = whole[from + byte];
      to += itemsize;
    }
  }
  return out;
}

const INFINITE = { inf: Infinity, infinity: Infinity, "+inf": Infinity, "-inf": -Infinity,
  "-infinity": -Infinity, "∞": Infinity };

function parsed(cell) {
  const text = cell.trim();
  const value = text === "" ? NaN : Number(text);
  return Number.isNaN(value) ? (INFINITE[text.toLowerCase()] ?? NaN) : value;
}

/** What stands between the numbers: the first of these that occurs, blanks otherwise. */
async function separator(source) {
  const start = typeof source === "string" ? source.slice(0, 8192) : await source.slice(0, 8192).text();
  const lines = start.split(/[\r\n]+/).filter((line) => !line.startsWith("#"));
  // Of blanks there may be several: such lines are split in `take`.
  return [";", "\t", ",", "|"].find((one) => lines.some((line) => line.includes(one))) ?? "\u001f";
}

/** CSV from a file or a string; commas, semicolons, tabs or blanks between the numbers. */
export async function readCsv(source, name) {
  const delimiter = await separator(source);
  return new Promise((resolve, reject) => {
    let numbers = new Float64Array(4096);
    let rows = 0;
    let columns = 0;
    let line = 0;
    let problem = null;
    const fail = (text, parser) => {
      problem = new FileProblem(`${name}, ${text}`);
      parser.abort();
    };
    const take = (cells, parser) => {
      line += 1;
      if (cells.length === 1) cells = cells[0].trim().split(/\s+/); // blanks between numbers
      while (cells.length > 1 && cells.at(-1).trim() === "") cells.pop(); // "1,2," at the line's end
      if (cells.length === 1 && cells[0] === "") return;
      const values = cells.map(parsed);
      const wrong = values.findIndex(Number.isNaN);
      if (wrong >= 0) {
        if (rows === 0 && line === 1 && values.every(Number.isNaN)) return; // headings
        const cell = cells[wrong].trim().slice(0, 30);
        const what = cell ? `“${cell}” is not a number` : "the cell is empty";
        fail(`line ${line}, column ${wrong + 1}: ${what}.`, parser);
        return;
      }
      if (rows === 0) columns = values.length;
      if (values.length !== columns) {
        fail(`line ${line}: ${values.length} numbers, but the lines above have ${columns}.`, parser);
        return;
      }
      if ((rows + 1) * columns > numbers.length) {
        const grown = new Float64Array(Math.max(2 * numbers.length, columns));
        grown.set(numbers);
        numbers = grown;
      }
      numbers.set(values, rows * columns);
      rows += 1;
    };
    globalThis.Papa.parse(source, {
      delimiter,
      comments: "#",
      skipEmptyLines: false,
      chunk(results, parser) {
        for (const cells of results.data) {
          if (problem) return;
          take(cells, parser);
        }
      },
      error: (error) => reject(new FileProblem(`${name} cannot be read: ${error.message}`)),
      complete() {
        if (problem) reject(problem);
        else if (rows === 0) reject(new FileProblem(`${name} holds no numbers.`));
        else resolve(fromNumbers(numbers.slice(0, rows * columns), rows, columns));
      },
    });
  });
}

function fromNumbers(numbers, rows, columns) {
  return {
    shape: [rows, columns], vector: false, dtype: "float64", itemsize: 8,
    // Every browser's machine is little-endian today; the service wants it so.
    read: async (first, last) => new Uint8Array(numbers.slice(first * columns, last * columns).buffer),
  };
}

/** A typed array over little-endian bytes, or null for a type the browser has none for. */
function typed(bytes, dtype) {
  const kinds = {
    float64: Float64Array, float32: Float32Array, int32: Int32Array, int16: Int16Array,
    int8: Int8Array, uint32: Uint32Array, uint16: Uint16Array, uint8: Uint8Array,
    int64: BigInt64Array, uint64: BigUint64Array,
  };
  const kind = kinds[dtype];
  if (!kind) return null;
  const aligned = bytes.slice(); // a view must start at a multiple of its item's size
  return new kind(aligned.buffer, 0, aligned.byteLength / kind.BYTES_PER_ELEMENT);
}

// As the service takes them inside JSON, which has no infinity.
const inJson = (value) => (Number.isFinite(value) ? value : value > 0 ? "Infinity" : "-Infinity");

const tooLarge = (value) => Number.isInteger(value) && !Number.isSafeInteger(value);

/** The table as nested lists for a spec, or null when JSON cannot say every number. */
export async function asLists(table) {
  const [rows, columns] = table.shape;
  const values = typed(await table.read(0, rows), table.dtype);
  if (!values) return null;
  const lists = [];
  for (let i = 0; i < rows; i += 1) {
    const row = Array.from(values.subarray(i * columns, (i + 1) * columns), Number);
    // Left to the upload, which keeps every bit and names NaN.
    if (row.some(Number.isNaN) || row.some(tooLarge)) return null;
    lists.push(row.map(inJson));
  }
  return lists;
}
