"""Pages whose text is known: prose, a letter full of figures, instructions, minutes; in English and in Portuguese.

They were written before the first measurement and are not chosen by how well they read.
"""

from __future__ import annotations

from typing import Final

from tests.support.pages import SAMPLES

_LETTER = (
    "Northfield & Sons Ltd., 27 Quayside Road, Bristol BS1 4QA. Telephone 0117 496 0823, e-mail "
    "accounts@northfield.example. Bristol, 6 February 2026. Our reference: NF/2026-0318.\n"
    "Dear Mrs. O'Connell, thank you for your order of 29 January. We confirm 48 boxes (item no. 7731-B) at £12.95 "
    "each, 6 crates at £104.50, and carriage of £38.00; that is £1,286.60 before tax, and £1,543.92 with VAT at 20%. "
    "Payment is due within 30 days: please quote the number above. A discount of 2.5% applies to payments received "
    "before 20 February.\n"
    "Two points need your attention. First, item 7731-B has been replaced by 7732-A, which is 15 mm wider but "
    "otherwise identical; if this does not suit you, call Mr. Fitzgerald (extension 214) by Friday. Second, our lorry "
    "cannot enter Mill Lane: its weight limit is 7.5 t. Would delivery to the rear gate, between 8:30 and 11:00, be "
    "possible?\n"
    "We regret the delay of last month's shipment. It was caused by the closure of the M5 at junction 17/18, and not, "
    "as you were told, by a shortage of stock. Yours sincerely, J. P. Whitaker, Sales Manager."
)

_INSTRUCTIONS = (
    "4.2 Replacing the filter\n"
    "Switch the pump off and wait until the gauge shows 0.0 bar. WARNING: water above 60 °C may escape! Wear gloves "
    "and eye protection. Keep children away from the work area.\n"
    "1. Close valves V1 and V3. 2. Loosen the four hexagonal screws (M8 x 40) with a 13 mm spanner, in the order "
    "A-C-B-D. 3. Pull the cartridge out by its handle; never use a screwdriver, as it would scratch the sealing ring. "
    "4. Check the ring: if it is brittle, flattened or cracked, replace it (part 0048-112). 5. Insert the new "
    "cartridge so that the arrow points upwards, and tighten the screws to 22 Nm.\n"
    "Open V1 slowly, by a quarter turn, and let the air escape through the vent. When no more bubbles are seen, open "
    "V1 and V3 completely. The pressure should rise to 2.8 bar within 90 seconds; if it stays below 2.1 bar, see "
    'section 6, "Faults and what to do about them", on page 31.\n'
    "Write the date and the reading of the hour meter on the label (example: 14/09/2025, 3,471 h). The cartridge "
    "lasts about 1,200 hours, or 6 months, whichever comes first; with hard water (more than 18 °dH) it lasts half "
    "as long. Used cartridges are household waste."
)

_MINUTES = (
    "Minutes of the annual meeting of the Elm Street Allotment Society, held in the school hall on Tuesday, 11 "
    "November 2025, at 7:15 p.m. Present: 37 members; apologies from Ms. Zielinski, Dr. Quirke and the Joneses.\n"
    "1. The minutes of last year's meeting were read and approved. Nobody had kept a copy of the plan which they "
    "mention, so that the question of plot 19 remains open.\n"
    "2. The treasurer reported an income of 4,215.00 and expenses of 3,987.45, mostly for the new water pipe. The "
    "balance is healthy; the fee stays at 65 a year. Mr. Abbott asked why jam jars appear twice in the accounts. It "
    "was explained that some had been bought, and others had been broken.\n"
    "3. Wildlife. A badger has been seen near the compost heaps. After a long and lively discussion it was agreed, by "
    "21 votes to 14 with two abstentions, to do nothing about it.\n"
    "4. Elections. All officers were willing to serve again and were elected unanimously, except the secretary, who "
    "was elected against his own vote. 5. Any other business: the key to the tool shed is missing. Whoever has it is "
    "asked to hang it back on its hook; no questions will be asked. The meeting closed at 9:40."
)

_CARTA = (
    "Comércio de Cereais Três Irmãos Ltda., Rua São João, 1.482, sala 7, Ribeirão Preto (SP), CEP 14010-160. Telefone "
    "(16) 3977-0284, correio eletrônico vendas@tresirmaos.example. Ribeirão Preto, 18 de março de 2026.\n"
    "Prezada Sra. Conceição Araújo: agradecemos o pedido de 11 de março. Confirmamos 120 sacas de feijão a R$ 287,50 "
    "cada, 35 de arroz agulhinha a R$ 142,90 e o frete de R$ 1.860,00, num total de R$ 41.361,50. O pagamento vence em "
    "28 dias; até o dia 25 há desconto de 3,5%. Nosso CNPJ é 12.345.678/0001-95 e a inscrição estadual não mudou.\n"
    "Duas observações: a) o lote 0937 tem validade até 30/09/2026, e não até outubro, como constava na cotação; b) o "
    "caminhão não poderá entrar na Travessa das Flores, cuja ponte só suporta 8 toneladas. Seria possível receber a "
    "mercadoria no portão dos fundos, entre 7h30 e 10h? Se não for, avise o Sr. Antônio até sexta-feira.\n"
    "Pedimos desculpas pelo atraso do mês passado. A culpa não foi da transportadora: choveu 214 milímetros em três "
    "dias e a rodovia ficou interditada à altura do quilômetro 306. Atenciosamente, Inês Guimarães, gerente comercial."
)

_INSTRUCOES = (
    "4.2 Substituição do filtro\n"
    "Desligue a bomba e espere até que o manômetro indique 0,0 bar. ATENÇÃO: pode escapar água acima de 60 °C! Use "
    "luvas e óculos de proteção. Mantenha as crianças longe do local.\n"
    "1. Feche as válvulas V1 e V3. 2. Solte os quatro parafusos sextavados (M8 x 40) com uma chave de 13 mm, na ordem "
    "A-C-B-D. 3. Puxe o cartucho pela alça; nunca use chave de fenda, pois ela risca o anel de vedação. 4. Examine o "
    "anel: se estiver quebradiço, achatado ou rachado, troque-o (peça 0048-112). 5. Coloque o cartucho novo com a seta "
    "para cima e aperte os parafusos com 22 Nm.\n"
    "Abra V1 devagar, um quarto de volta, e deixe o ar sair pelo respiro. Quando não houver mais bolhas, abra V1 e V3 "
    "por completo. A pressão deve subir a 2,8 bar em 90 segundos; se ficar abaixo de 2,1 bar, veja a seção 6, "
    '"Defeitos e soluções", na página 31.\n'
    "Anote na etiqueta a data e a leitura do horímetro (exemplo: 14/09/2025, 3.471 h). O cartucho dura cerca de 1.200 "
    "horas, ou seis meses, o que ocorrer primeiro; com água dura, a duração cai pela metade. Cartuchos usados vão para "
    "o lixo doméstico, nunca para a reciclagem."
)

_ATA = (
    "Ata da assembleia anual da Associação dos Moradores do Jardim Botânico, realizada no salão da escola na "
    "terça-feira, 11 de novembro de 2025, às 19h15. Presentes: 37 sócios. Justificaram a ausência a Sra. Eugênia, o "
    "Dr. Falcão e a família Magalhães.\n"
    "1. Leu-se e aprovou-se a ata do ano anterior. Ninguém guardou cópia da planta que ela menciona, de modo que a "
    "questão do lote 19 continua em aberto.\n"
    "2. O tesoureiro apresentou receitas de 4.215,00 e despesas de 3.987,45, sobretudo com o novo cano d'água. O saldo "
    "é bom; a anuidade permanece em 65 reais. O Sr. Abílio quis saber por que os potes de geleia aparecem duas vezes "
    "nas contas. Explicou-se que uns foram comprados e outros, quebrados.\n"
    "3. Animais. Viu-se um tamanduá perto da composteira. Após longa e animada discussão decidiu-se, por 21 votos a 14 "
    "e duas abstenções, não fazer nada.\n"
    "4. Eleições. Todos aceitaram continuar e foram reeleitos por unanimidade, exceto o secretário, eleito contra o "
    "próprio voto. 5. Outros assuntos: sumiu a chave do depósito. Quem a tiver, por favor, pendure-a no gancho; "
    "ninguém fará perguntas. A sessão encerrou-se às 21h40, com café e pão de ló."
)

PAGES: Final = {
    "en": (SAMPLES["en"], _LETTER, _INSTRUCTIONS, _MINUTES),
    "pt": (SAMPLES["pt"], _CARTA, _INSTRUCOES, _ATA),
}
"""A text for each page. They fit WinAnsi, which is all that the standard fonts can write."""
