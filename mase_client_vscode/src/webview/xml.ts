/** A text without the characters that an XML file cannot hold, not even escaped: control characters and half pairs. */
export function xmlText(text: string): string {
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ud800-\udfff\ufffe\uffff]/gu, '\ufffd');
}
