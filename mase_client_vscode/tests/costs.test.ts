/** The cost table as data: order, filter, what is shown, and what leaves it. Expected rows are worked by hand. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { COLUMNS, columnsOf, textOf } from '../src/costs/columns';
import { exact, inBytes, scaled, share, significant } from '../src/figures';
import { wish } from '../src/costs/keys';
import { asCsv, asTsv } from '../src/costs/sheet';
import { Tree, View, nextSort } from '../src/costs/tree';
import { CostRow } from 'mase-client/records';

function row(id: string, parent: number, facts: Partial<CostRow> = {}): CostRow {
  const name = id.split(/[./]/).at(-1) || 'Net';
  return {
    id, parent, name, kind: 'layer', type: 'linear', nodes: 1, parameters: 0, parameter_bytes: 0, shared: [], flops: 0, traffic: 0,
    results: 0, formats: [], bits: null, sqnr: null, max_error: null, hardware: null, places: [], passes: '', saturated: null, kernels: null,
    seconds: null, moved: null, bound: null, held: null,
    ...facts,
  };
}

const scope = { kind: 'scope', type: 'Block' } as const;
/** Net(stem, blocks(0(fc, relu, out), 1(fc, relu)), head). */
const rows = [
  row('', -1, { kind: 'scope', type: 'Net', flops: 1000, parameters: 60 }),
  row('stem', 0, { type: 'conv2d', flops: 90, parameters: 20, shared: ['head'] }),
  row('blocks', 0, { ...scope, type: '', flops: 810, parameters: 20 }),
  row('blocks.0', 2, { ...scope, flops: 310, parameters: 15 }),
  row('blocks.0.fc', 3, { flops: 100, parameters: 5 }),
  row('blocks.0/relu', 3, { kind: 'operator', type: '', flops: 10 }),
  row('blocks.0.out', 3, { flops: 200, parameters: 10 }),
  row('blocks.1', 2, { ...scope, flops: 500, parameters: 5 }),
  row('blocks.1.fc', 7, { flops: 500, parameters: 5 }),
  row('blocks.1/relu', 7, { kind: 'operator', type: '', flops: 0 }),
  row('head', 0, { flops: 100, parameters: 20, shared: ['stem'] }),
];
const tree = new Tree({ rows });
const all: View = { sort: null, filter: '', flat: false, operators: true, open: tree.all() };
const ids = (view: Partial<View>) => tree.shown({ ...all, ...view }).map(({ row }) => row.id);

test('rows that are open show their parts, in the order of the model', () => {
  assert.deepEqual(ids({}), rows.map(({ id }) => id));
  assert.deepEqual(ids({ open: new Set(['']) }), ['', 'stem', 'blocks', 'head']);
  assert.deepEqual(ids({ open: new Set(['blocks.0']) }), ['']);
});

test('a row tells its level, its place beside others, and whether it is open', () => {
  const shown = tree.shown({ ...all, open: new Set(['', 'blocks']) });
  const told = shown.map(({ row, level, position, size, open }) => [row.id, level, position, size, open]);
  assert.deepEqual(told, [
    ['', 1, 1, 1, true],
    ['stem', 2, 1, 3, undefined],
    ['blocks', 2, 2, 3, true],
    ['blocks.0', 3, 1, 2, false],
    ['blocks.1', 3, 2, 2, false],
    ['head', 2, 3, 3, undefined],
  ]);
});

test('sorting orders what stands beside each other, the largest first; what says nothing is last, whichever way', () => {
  const most = ['', 'blocks', 'blocks.1', 'blocks.1.fc', 'blocks.1/relu', 'blocks.0', 'blocks.0.out', 'blocks.0.fc', 'blocks.0/relu', 'head', 'stem'];
  assert.deepEqual(ids({ sort: { column: 'flops', descending: true } }), most);
  const least = ['', 'stem', 'head', 'blocks', 'blocks.0', 'blocks.0/relu', 'blocks.0.fc', 'blocks.0.out', 'blocks.1', 'blocks.1.fc', 'blocks.1/relu'];
  assert.deepEqual(ids({ sort: { column: 'flops', descending: false } }), least);
  assert.deepEqual(ids({ open: new Set(['']), sort: { column: 'name', descending: false } }), ['', 'blocks', 'head', 'stem']);
});

test('equal rows keep their order', () => {
  assert.deepEqual(ids({ open: new Set(['']), sort: { column: 'parameters', descending: true } }), ['', 'stem', 'blocks', 'head']);
});

test('flat lists layers and operators alone, all in one order', () => {
  const sort = { column: 'flops', descending: true };
  assert.deepEqual(ids({ flat: true, sort }).slice(0, 4), ['blocks.1.fc', 'blocks.0.out', 'blocks.0.fc', 'head']);
  assert.deepEqual(ids({ flat: true, operators: false }), ['stem', 'blocks.0.fc', 'blocks.0.out', 'blocks.1.fc', 'head']);
});

test('operators can be left out', () => {
  assert.deepEqual(ids({ operators: false, open: new Set(['', 'blocks', 'blocks.1']) }), ['', 'stem', 'blocks', 'blocks.0', 'blocks.1', 'blocks.1.fc', 'head']);
});

test('a filter shows what fits with all that holds it, also where that is closed; every word has to fit', () => {
  assert.deepEqual(ids({ filter: 'fc', open: new Set() }), ['', 'blocks', 'blocks.0', 'blocks.0.fc', 'blocks.1', 'blocks.1.fc']);
  assert.deepEqual(ids({ filter: '  FC blocks.1 ' }), ['', 'blocks', 'blocks.1', 'blocks.1.fc']);
  assert.deepEqual(ids({ filter: 'conv2d' }), ['', 'stem']);
  assert.deepEqual(ids({ filter: 'nowhere' }), []);
});

test('at first whole levels are open as long as that stays short', () => {
  assert.deepEqual(tree.firstOpen(), new Set(['', 'blocks', 'blocks.0', 'blocks.1']));
  const many = [row('', -1, scope), ...Array.from({ length: 30 }, (_, index) => [row(`b${index}`, 0, scope), row(`b${index}.fc`, 1 + 2 * index)]).flat()];
  assert.deepEqual(new Tree({ rows: many }).firstOpen(), new Set(['']));
});

test('a row in a closed one is stood for by the outermost of them; one that is filtered away by nobody', () => {
  const shown = (view: Partial<View>) => new Map(tree.shown({ ...all, ...view }).map((each) => [each.row.id, each]));
  assert.equal(tree.standIn('blocks.0.fc', shown({})), 'blocks.0.fc');
  assert.equal(tree.standIn('blocks.0.fc', shown({ open: new Set(['', 'blocks']) })), 'blocks.0');
  assert.equal(tree.standIn('blocks.0.fc', shown({ open: new Set([''])})), 'blocks');
  assert.equal(tree.standIn('head', shown({ filter: 'fc' })), undefined);
});

test('a title sorts by the largest, then by the smallest, then not at all; names begin with A', () => {
  const flops = nextSort(null, 'flops');
  assert.deepEqual(flops, { column: 'flops', descending: true });
  assert.deepEqual(nextSort(flops, 'flops'), { column: 'flops', descending: false });
  assert.equal(nextSort({ column: 'flops', descending: false }, 'flops'), null);
  assert.deepEqual(nextSort(flops, 'name'), { column: 'name', descending: false });
});

test('columns that tell nothing are left out', () => {
  assert.deepEqual(columnsOf(rows).map(({ id }) => id), ['name', 'parameters', 'flops']);
  const hardware = { multipliers: 4, luts: 0, memory_bits: 9, cycles: 16 };
  const passes = 'LoRA rank 8 · 1.2 % trainable';
  const told = columnsOf([row('', -1, { formats: ['fixed(8,4)'], bits: 8, sqnr: 'inf', saturated: 0, passes, hardware })]).map(({ id }) => id);
  assert.deepEqual(told, ['name', 'parameters', 'flops', 'format', 'bits', 'sqnr', 'saturated', 'passes', 'multipliers', 'luts', 'memory', 'cycles']);
});

test('a run on a device has its columns after the operations, and keeps them while it is computed again', () => {
  const facts = { seconds: 0.0031, moved: 24_600_000, bound: 'memory', held: 0 };
  const ids = (rows: CostRow[], older = false) => columnsOf(rows, older).map(({ id }) => id);
  assert.deepEqual(ids([row('', -1, facts)]), ['name', 'parameters', 'flops', 'seconds', 'moved', 'bound']);
  assert.deepEqual(ids([row('', -1)], true), ['name', 'parameters', 'flops', 'seconds', 'moved', 'bound', 'held']);
  const told = Object.fromEntries(COLUMNS.map((column) => [column.id, textOf(column, row('x', 0, facts))]));
  assert.deepEqual([told['seconds'], told['moved'], told['bound'], told['held']], ['3.1 ms', '24.6 MB', 'memory', '']);
});

test('cells say what the hovers say', () => {
  const facts = { parameters: 793088, flops: 33554432, parameter_bytes: 3172352, sqnr: 38.16, max_error: 0.012345, saturated: 0.0042, bits: 4.25, formats: ['a', 'b', 'c'] };
  const told = Object.fromEntries(COLUMNS.map((column) => [column.id, textOf(column, row('x', 0, facts))]));
  const expected = { parameters: '793,088', flops: '33.6 M', weights: '3.03 MiB', sqnr: '38.2 dB', error: '0.0123', saturated: '0.42 %', bits: '4.25', format: '3 formats', cycles: '' };
  for (const [id, text] of Object.entries(expected)) assert.equal(told[id], text);
  assert.equal(textOf(COLUMNS.find(({ id }) => id === 'sqnr')!, row('x', 0, { sqnr: 'inf' })), 'exact');
});

test('an exact result is better than any other', () => {
  const few = new Tree({ rows: [row('', -1, scope), row('a', 0, { sqnr: 20 }), row('b', 0, { sqnr: 'inf' }), row('c', 0), row('d', 0, { sqnr: 50 })] });
  const shown = few.shown({ ...all, open: new Set(['']), sort: { column: 'sqnr', descending: true } });
  assert.deepEqual(shown.map(({ row }) => row.id), ['', 'b', 'd', 'a', 'c']);
});

test('figures', () => {
  assert.deepEqual([0, 12, 999, 1000, 75_500_000, 1.5e12].map((each) => scaled(each)), ['0', '12', '999', '1.00 k', '75.5 M', '1.50 T']);
  assert.deepEqual([12, 75_500_000, 0.0336].map((each) => scaled(each, 'FLOPs')), ['12 FLOPs', '75.5 MFLOPs', '0.0336 FLOPs']);
  assert.deepEqual([12, 1023, 1024, 98_304, 5 * 2 ** 30].map(inBytes), ['12 B', '1023 B', '1.00 KiB', '96.0 KiB', '5.00 GiB']);
  assert.deepEqual([share(1, 4), share(1, 3), share(1, 10_000), share(0, 4), share(1, 0)], ['25 %', '33.3 %', '< 0.1 %', '0 %', '0 %']);
  assert.deepEqual([exact(1234567), significant(8), significant(0.012345)], ['1,234,567', '8', '0.0123']);
});

test('rows leave with all their digits, and with what would end a cell kept inside of it', () => {
  const odd = new Tree({ rows: [row('', -1, { kind: 'scope', type: 'Net', flops: 33554432, formats: ['fixed(8,4)'], sqnr: 'inf' }), row('a', 0, { type: 'my "layer"\n', flops: 7 })] });
  const shown = odd.shown({ ...all, open: new Set(['']) });
  const columns = columnsOf(odd.rows);
  assert.equal(asCsv(shown, columns), 'Path,Type,Parameters,FLOPs,Format,SQNR\r\nNet,Net,,33554432,"fixed(8,4)",inf\r\na,"my ""layer""\n",,7,,\r\n');
  assert.equal(asTsv(shown, columns), 'Path\tType\tParameters\tFLOPs\tFormat\tSQNR\nNet\tNet\t\t33554432\tfixed(8,4)\tinf\na\tmy "layer" \t\t7\t\t');
});

test('a name that a spreadsheet would compute stays a text; a negative number stays a number', () => {
  const names = ['=HYPERLINK("http://x")', '+1', '-1', '@SUM(A1)', '\t=1', '\r=1', 'a=1'];
  const hostile = new Tree({ rows: [row('', -1, scope), ...names.map((name) => row(name, 0, { sqnr: -3.5 }))] });
  const shown = hostile.shown({ ...all, open: new Set(['']) }).slice(1);
  const columns = columnsOf(hostile.rows).filter(({ id }) => id === 'name' || id === 'sqnr');
  const expected = [`"'=HYPERLINK(""http://x"")"`, `'+1`, `'-1`, `'@SUM(A1)`, `'\t=1`, `"'\r=1"`, 'a=1'];
  assert.equal(asCsv(shown, columns), ['Path,Type,SQNR', ...expected.map((name) => `${name},linear,-3.5`), ''].join('\r\n'));
  assert.deepEqual(asTsv(shown, columns).split('\n').slice(1, 3), [`'=HYPERLINK("http://x")\tlinear\t-3.5`, `'+1\tlinear\t-3.5`]);
});

test('keys move, open and close as in any tree', () => {
  const shown = tree.shown({ ...all, open: new Set(['', 'blocks']) });
  const after = (key: string, selected: string) => wish(key, shown, selected, 3);
  assert.deepEqual(after('ArrowDown', 'stem'), { select: 'blocks' });
  assert.deepEqual(after('ArrowDown', 'head'), { select: 'head' });
  assert.deepEqual(after('ArrowUp', ''), { select: '' });
  assert.deepEqual(after('PageDown', 'stem'), { select: 'blocks.1' });
  assert.deepEqual(after('PageUp', 'blocks.0'), { select: '' });
  assert.deepEqual([after('Home', 'head'), after('End', '')], [{ select: '' }, { select: 'head' }]);
  assert.deepEqual(after('ArrowRight', 'blocks.0'), { toggle: 'blocks.0' });
  assert.deepEqual(after('ArrowRight', 'blocks'), { select: 'blocks.0' });
  assert.equal(after('ArrowRight', 'stem'), undefined);
  assert.deepEqual(after('ArrowLeft', 'blocks'), { toggle: 'blocks' });
  assert.deepEqual(after('ArrowLeft', 'blocks.1'), { select: 'blocks' });
  assert.deepEqual([after('Enter', 'stem'), after(' ', 'blocks'), after(' ', 'stem')], [{ goTo: 'stem' }, { toggle: 'blocks' }, undefined]);
  assert.deepEqual(after('ArrowDown', 'gone'), { select: '' });
  assert.equal(after('x', 'stem'), undefined);
});
