/** The form for inputs: what a comment has to say of what was typed; two sets as texts. */
import { strict as assert } from 'node:assert';
import { test } from 'node:test';
import { text } from '../src/inputs/comparison';
import { misnamed, missing, said, textOf, textsOf } from '../src/inputs/draft';
import { figures, sizes, traced } from '../src/inputs/texts';
import { InputComparison, InputField, InputForm, InputTrial } from 'mase-client/records';

const field = (name: string, text: string, more: Partial<InputField> = {}): InputField => ({ name, text, why: '', required: true, default: '', ...more });
const FORM: InputForm = {
  call: 'Net',
  arguments: [field('width', '5'), field('deep', '', { required: false, default: 'False' })],
  inputs: [field('x', 'f32[B=2, 5]'), field('scale', '', { required: false, default: '1.0' })],
};

test('arguments that nobody said and nobody changed are left to what is found', () => {
  assert.deepEqual(said(FORM, textsOf(FORM), 'main'), { inputs: { x: 'f32[B=2, 5]' } });
});

test('a changed argument, one of a comment and one that was assumed are said', () => {
  const all = { inputs: { x: 'f32[B=2, 5]' }, arguments: { width: '5' } };
  assert.deepEqual(said(FORM, textsOf(FORM), 'comment'), all);
  assert.deepEqual(said(FORM, textsOf(FORM), 'search'), all);
  const wider = { ...textsOf(FORM), 'arguments.width': ' 7 ' };
  assert.deepEqual(said(FORM, wider, 'main'), { ...all, arguments: { width: '7' } });
});

test('arguments that were taken back are said as a call without them', () => {
  const none = { ...textsOf(FORM), 'arguments.width': '' };
  assert.deepEqual(said(FORM, none, 'comment'), { inputs: { x: 'f32[B=2, 5]' }, arguments: {} });
});

test('a model that no comment can make has inputs alone', () => {
  assert.deepEqual(said({ ...FORM, call: '', arguments: [] }, textsOf(FORM), 'search'), { inputs: { x: 'f32[B=2, 5]' } });
});

test('what is required is needed, unless it cannot be written', () => {
  const texts = { ...textsOf(FORM), 'inputs.x': ' ', 'arguments.width': '' };
  assert.deepEqual(missing(FORM, texts), { 'inputs.x': 'x is needed', 'arguments.width': 'width is needed' });
  const held: InputForm = { ...FORM, arguments: [field('width', '', { why: 'a Tensor has no text form' })] };
  assert.deepEqual(missing(held, { ...texts, 'inputs.x': 'f32[1]' }), {});
});

test('a set has a name of its own that a comment can hold', () => {
  assert.equal(misnamed(' small 2 ', ['large']), undefined);
  assert.equal(misnamed('', []), 'A set needs a name');
  assert.equal(misnamed('a:b', []), 'Use letters, digits, blanks and _ . + -');
  assert.equal(misnamed('large', ['large']), 'There is already a set large');
});

test('a comment is what stands behind its mase', () => {
  assert.equal(textOf({ comment: 'mase[a b]: Net(width=3); x: f32[1]' } as InputTrial), 'Net(width=3); x: f32[1]');
  assert.equal(textOf({ comment: 'mase: x: f32[1]' } as InputTrial), 'x: f32[1]');
});

test('sizes are numbers, whatever they are called', () => {
  assert.equal(sizes(['f32', [2, 5], ['B', '5']]), 'f32[2, 5]');
  assert.equal(sizes({ tuple: [['i64', [], null], null] }), '(i64[], None)');
  assert.equal(sizes({ dict: { a: ['f32', [1], null] } }), '{a: f32[1]}');
});

const side = (set: string, batch: number) => ({
  set,
  inputs: { x: ['f32', [batch, 5], null] as [string, number[], null] },
  inputs_from: 'comment',
  arguments_from: 'comment',
  found: '',
  outputs: ['f32', [batch, 4], null] as [string, number[], null],
  parameters: 24,
  flops: 40 * batch,
  bytes: 1600 * batch,
  parameter_bytes: 96,
  nodes: 1,
  seconds: 0.124,
  form: null,
});

test('what a forward that fails would give is left blank, and one that gives None gives None', () => {
  const told = (outputs: null, flops: number | null) => Object.fromEntries(figures({ ...side('', 2), outputs, flops, bytes: flops }));
  assert.deepEqual(told(null, null), { output: '', parameters: '24', FLOPs: '', 'bytes read and written': '' });
  assert.equal(told(null, 40).output, 'None');
});

const trial = (more: Partial<InputTrial>): InputTrial => ({ ...side('', 2), comment: '', problems: [], ...more });

test('a form says what went in and what came out, and which input prevents it', () => {
  const named = trial({ inputs: { x: ['f32', [2, 5], ['B', '5']], mask: null } });
  assert.equal(traced('Net', named), 'Traced Net with x: f32[B=2, 5], mask: None → f32[2, 4] in 0.12 s.');
  assert.equal(traced('Net', trial({ outputs: null, flops: null })), 'The forward of Net with x: f32[2, 5] fails.');
  const wrong = { severity: 'error', field: 'inputs.x', message: 'unknown element type' };
  assert.equal(traced('Net', trial({ inputs: null, problems: [wrong, wrong] })), 'Not traced, because of x.');
  assert.equal(traced('Net', trial({ inputs: null, problems: [{ ...wrong, field: '' }] })), 'Not traced: the message above says why.');
});

const row = (line: number, name: string, kind: string, one: number, two: number) => ({
  line, column: 0, name, kind, function: 'forward', before: [['f32', [one], null] as [string, number[], null]], after: [['f32', [two], null] as [string, number[], null]], differs: one !== two,
});
const TOLD: InputComparison = {
  path: '/net.py',
  model: 'Net',
  before: side('small', 2),
  after: side('large', 8),
  rows: [row(9, 'x', 'parameter', 2, 8), row(10, 'w', 'binding', 5, 5), row(11, '', 'return', 2, 8)],
  problems: [],
};

test('two sets give texts of equal lines, of which those differ that a size differs in', () => {
  const [before, after] = [text(TOLD, 'before', 'small').split('\n'), text(TOLD, 'after', 'large').split('\n')];
  assert.equal(before.length, after.length);
  const same = before.filter((line, index) => line === after[index]);
  assert.deepEqual(same.filter((line) => line.includes('w  ')), ['  10  w       f32[5]']);
  assert.ok(before.includes('  11  return  f32[2]') && after.includes('  11  return  f32[8]'));
  assert.ok(before.includes('parameters              24') && same.includes('parameters              24'));
});

test('a set that cannot be traced says why', () => {
  const told = { ...TOLD, after: null, problems: [{ severity: 'error', field: '', message: 'no such size' }] };
  assert.equal(text(told, 'after', 'large'), 'Net with the inputs large cannot be traced:\n  no such size\n');
});
